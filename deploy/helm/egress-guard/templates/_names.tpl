{{- define "egress-guard.selector" -}}
app.kubernetes.io/name: egress-guard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "egress-guard.labels" -}}
{{ include "egress-guard.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "egress-guard.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "egress-guard.policyMap" -}}
{{ .Values.policy.existingConfigMap | default (printf "%s-policy" .Release.Name) }}
{{- end }}

{{/* Ports that agents reach: name, number and protocol (TCP if absent), each once, as a JSON list. */}}
{{- define "egress-guard.ports" -}}
{{- $ports := list -}}
{{- if eq .Values.shape "envoy" -}}
{{- $ports = .Values.envoy.ports -}}
{{- else -}}
{{- $seen := dict -}}
{{- range .Values.listeners -}}
{{- if not (hasKey $seen (toString .port)) -}}
{{- $_ := set $seen (toString .port) true -}}
{{- $ports = append $ports (dict "name" .name "port" (int .port)) -}}
{{- end -}}
{{- end -}}
{{- if .Values.forward.enabled -}}
{{- $ports = append $ports (dict "name" "forward" "port" (int .Values.forward.port)) -}}
{{- end -}}
{{- end -}}
{{ toJson $ports }}
{{- end }}

{{/* What would be unsafe, or could not start, is an error before anything is installed. */}}
{{- define "egress-guard.check" -}}
{{- $v := .Values -}}
{{- if not (or $v.listeners $v.forward.enabled) -}}
{{- fail "name at least one of `listeners`, or enable `forward`" -}}
{{- end -}}
{{- if eq (empty $v.policy.files) (empty $v.policy.existingConfigMap) -}}
{{- fail "give either `policy.files` or `policy.existingConfigMap`" -}}
{{- end -}}
{{- if and $v.redis.url $v.redis.existingSecret -}}
{{- fail "give either `redis.url` or `redis.existingSecret`" -}}
{{- end -}}
{{- if not (or $v.redis.url $v.redis.existingSecret) -}}
{{- if or (gt (int $v.replicas) 1) $v.autoscaling.enabled -}}
{{- fail "several pods need one Redis: give `redis.url` or `redis.existingSecret`, or one replica without autoscaling" -}}
{{- end -}}
{{- else if not $v.secrets.keys -}}
{{- fail "pods that share a Redis need the same label key: make a Secret with `label.key` and name it in `secrets.keys`" -}}
{{- end -}}
{{- if and $v.forward.enabled (not $v.secrets.authority) (or (gt (int $v.replicas) 1) $v.autoscaling.enabled) -}}
{{- fail "several pods need one authority: make a Secret of the directory of `guard ca` and name it in `secrets.authority`" -}}
{{- end -}}
{{- if and $v.credentialFiles (not $v.secrets.credentials) -}}
{{- fail "`credentialFiles` are in the Secret that `secrets.credentials` names" -}}
{{- end -}}
{{- if and (eq $v.shape "sidecar") (not $v.sidecar.agent) -}}
{{- fail "shape `sidecar` needs the agent's container in `sidecar.agent`" -}}
{{- end -}}
{{- if eq $v.shape "envoy" -}}
{{- if or $v.forward.enabled (not $v.listeners) -}}
{{- fail "shape `envoy` has `listeners` and no `forward`" -}}
{{- end -}}
{{- if not (and $v.envoy.existingConfigMap $v.envoy.tlsSecret) -}}
{{- fail "shape `envoy` needs `envoy.existingConfigMap` and `envoy.tlsSecret`" -}}
{{- end -}}
{{- end -}}
{{- range $name := list "policy" "reverse" "listen" "server" "egress" "forward" "redis" "admin" "audit" "label_key" "audit_key" "ca" "workers" "drain" "durability" -}}
{{- if hasKey $v.settings $name -}}
{{- fail (printf "`settings.%s` is made from other values of this chart" $name) -}}
{{- end -}}
{{- end -}}
{{- end }}
