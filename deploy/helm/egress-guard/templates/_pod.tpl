{{/* The settings of `guard run`, as guard.toml. */}}
{{- define "egress-guard.settings" -}}
{{- $v := .Values -}}
{{- $host := ternary "127.0.0.1" $v.listen (eq $v.shape "sidecar") -}}
{{- $bound := ternary (printf "[%s]" $host) $host (contains ":" $host) -}}
{{- $names := ternary $v.policy.names (keys $v.policy.files | sortAlpha) (empty $v.policy.files) -}}
{{- $policy := list -}}
{{- range $names -}}
{{- if not (hasSuffix "_test.yaml" .) -}}
{{- $policy = append $policy (printf "/etc/guard/policy/%s" .) -}}
{{- end -}}
{{- end -}}
{{- $reverse := list -}}
{{- $servers := list -}}
{{- range $v.listeners -}}
{{- $servers = append $servers (printf "%s%s=%s" (ternary (printf "%s@" .principal) "" (not (empty .principal))) .name .upstream) -}}
{{- $path := ternary (printf "/%s" .path) "" (not (empty .path)) -}}
{{- $owner := ternary (printf "%s@" .principal) "" (not (empty .principal)) -}}
{{- $reverse = append $reverse (printf "%s%s:%d%s=%s" $owner $bound (int .port) $path .upstream) -}}
{{- end -}}
{{- $settings := dict "policy" $policy "workers" (int $v.workers) "durability" $v.durability "drain" (float64 $v.drainSeconds) -}}
{{- $_ := set $settings "admin" (printf "%s:9464" (ternary (printf "[%s]" $v.listen) $v.listen (contains ":" $v.listen))) -}}
{{- $_ := set $settings "audit" "/var/log/guard/audit.jsonl" -}}
{{- if eq $v.shape "envoy" -}}
{{- $_ := set $settings "server" $servers -}}
{{- $_ := set $settings "listen" (list "unix:/run/guard/decide.sock") -}}
{{- if $v.envoy.egress -}}{{- $_ := set $settings "egress" "unix:/run/guard/egress.sock" -}}{{- end -}}
{{- else if $reverse -}}{{- $_ := set $settings "reverse" $reverse -}}{{- end -}}
{{- if $v.forward.enabled -}}
{{- $_ := set $settings "forward" (list (printf "%s:%d" $bound (int $v.forward.port))) -}}
{{- end -}}
{{- if $v.redis.url -}}{{- $_ := set $settings "redis" $v.redis.url -}}{{- end -}}
{{- range $v.credentialFiles -}}
{{- $name := trimSuffix ".toml" . | replace "-" "_" -}}
{{- $_ := set $settings $name (printf "/etc/guard/credentials/%s" .) -}}
{{- end -}}
{{- toToml (merge $settings $v.settings) -}}
{{- end }}

{{- define "egress-guard.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "egress-guard.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* Keys must be files of the guard's user alone; a Secret's are root's, and its group's with fsGroup. */}}
{{- define "egress-guard.prepare" -}}
- name: prepare
  image: {{ include "egress-guard.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command:
    - /bin/sh
    - -euc
    - |
      umask 077
      mkdir -p /var/lib/guard/egress-guard
      # Two zeros: `fsGroup` has given the directory above a bit that this one must not inherit.
      chmod 00700 /var/lib/guard/egress-guard
      for file in /secrets/keys/*; do
        if [ -f "$file" ]; then install -m 0600 "$file" /var/lib/guard/egress-guard/; fi
      done
      for file in /secrets/authority/*; do
        if [ -f "$file" ]; then
          mkdir -p /var/lib/guard/egress-guard/ca
          install -m 0600 "$file" /var/lib/guard/egress-guard/ca/
        fi
      done
      {{- if eq .Values.shape "envoy" }}
      mkdir -p /run/guard
      chmod 00700 /run/guard
      {{- end }}
  securityContext: {{- include "egress-guard.containerSecurity" . | nindent 4 }}
  resources:
    requests: { cpu: 10m, memory: 16Mi }
    limits: { memory: 64Mi }
  volumeMounts:
    - { name: state, mountPath: /var/lib/guard, subPath: guard }
    {{- if eq .Values.shape "envoy" }}
    - { name: run, mountPath: /run }
    {{- end }}
    {{- if .Values.secrets.keys }}
    - { name: keys, mountPath: /secrets/keys, readOnly: true }
    {{- end }}
    {{- if .Values.secrets.authority }}
    - { name: authority, mountPath: /secrets/authority, readOnly: true }
    {{- end }}
{{- end }}

{{- define "egress-guard.guard" -}}
- name: guard
  image: {{ include "egress-guard.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [{{ ternary "decide" "run" (eq .Values.shape "envoy") }}, --config, /etc/guard/guard.toml]
  env:
    # Keys, the authority and notes are in `egress-guard` below it.
    - { name: XDG_STATE_HOME, value: /var/lib/guard }
    {{- if .Values.redis.existingSecret }}
    - name: GUARD_REDIS
      valueFrom:
        secretKeyRef: { name: {{ .Values.redis.existingSecret }}, key: {{ .Values.redis.key }} }
    {{- end }}
  ports:
    {{- if ne .Values.shape "envoy" }}
    {{- range include "egress-guard.ports" . | fromJsonArray }}
    - { name: {{ .name }}, containerPort: {{ .port }} }
    {{- end }}
    {{- end }}
    - { name: admin, containerPort: 9464 }
  # A pod that has never been able to judge gets no calls, and stops a roll-out.
  startupProbe:
    httpGet: { path: /readyz, port: admin }
    periodSeconds: 1
    timeoutSeconds: 2
    failureThreshold: 60
  readinessProbe:
    httpGet: { path: /readyz, port: admin }
    periodSeconds: 3
    timeoutSeconds: 2
    failureThreshold: 2
  # The supervisor replaces a worker that hangs; this is for the supervisor.
  livenessProbe:
    httpGet: { path: /healthz, port: admin }
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  lifecycle:
    # The pod is taken out of the service while this runs; only then does the guard stop listening.
    preStop:
      exec:
        command: [sleep, {{ .Values.preStopSeconds | quote }}]
  securityContext: {{- include "egress-guard.containerSecurity" . | nindent 4 }}
  resources: {{- toYaml .Values.resources | nindent 4 }}
  volumeMounts:
    - { name: settings, mountPath: /etc/guard/guard.toml, subPath: guard.toml, readOnly: true }
    # A directory, not single files: those would never change.
    - { name: policy, mountPath: /etc/guard/policy, readOnly: true }
    - { name: state, mountPath: /var/lib/guard, subPath: guard }
    - { name: state, mountPath: /var/log/guard, subPath: log }
    - { name: tmp, mountPath: /tmp }
    {{- if eq .Values.shape "envoy" }}
    - { name: run, mountPath: /run }
    {{- end }}
    {{- if .Values.secrets.credentials }}
    - { name: credentials, mountPath: /etc/guard/credentials, readOnly: true }
    {{- end }}
{{- end }}

{{/* Starts before the guard and ends after it, so that answers of calls in flight have a way back. */}}
{{- define "egress-guard.envoy" -}}
- name: envoy
  image: {{ .Values.envoy.image | quote }}
  restartPolicy: Always
  command: [envoy, -c, /etc/envoy/envoy.yaml, --log-level, warning]
  ports:
    {{- range .Values.envoy.ports }}
    - { name: {{ .name }}, containerPort: {{ .port }}, protocol: {{ .protocol | default "TCP" }} }
    {{- end }}
  securityContext: {{- include "egress-guard.containerSecurity" . | nindent 4 }}
  resources: {{- toYaml .Values.envoy.resources | nindent 4 }}
  volumeMounts:
    - { name: envoy, mountPath: /etc/envoy/envoy.yaml, subPath: envoy.yaml, readOnly: true }
    - { name: tls, mountPath: /etc/envoy/tls, readOnly: true }
    - { name: run, mountPath: /run }
    - { name: tmp, mountPath: /tmp }
{{- end }}

{{- define "egress-guard.volumes" -}}
{{- if eq .Values.shape "envoy" }}
- name: run
  emptyDir: { medium: Memory, sizeLimit: 1Mi }
- name: envoy
  configMap: { name: {{ .Values.envoy.existingConfigMap }} }
- name: tls
  secret: { secretName: {{ .Values.envoy.tlsSecret }}, defaultMode: 0440 }
{{- end }}
- name: settings
  configMap: { name: {{ .Release.Name }}-settings }
- name: policy
  configMap: { name: {{ include "egress-guard.policyMap" . }} }
- name: tmp
  emptyDir: { medium: Memory, sizeLimit: 64Mi }
{{- with .Values.secrets.keys }}
- name: keys
  secret: { secretName: {{ . }}, defaultMode: 0440 }
{{- end }}
{{- with .Values.secrets.authority }}
- name: authority
  secret: { secretName: {{ . }}, defaultMode: 0440 }
{{- end }}
{{- with .Values.secrets.credentials }}
- name: credentials
  secret: { secretName: {{ . }}, defaultMode: 0440 }
{{- end }}
{{- end }}

{{- define "egress-guard.podMetadata" -}}
labels:
  {{- include "egress-guard.labels" . | nindent 2 }}
  {{- with .Values.podLabels }}{{- toYaml . | nindent 2 }}{{- end }}
annotations:
  # Settings are read at the start; a changed policy is not among them.
  egress-guard/settings: {{ include "egress-guard.settings" . | sha256sum }}
  {{- with .Values.podAnnotations }}{{- toYaml . | nindent 2 }}{{- end }}
{{- end }}

{{- define "egress-guard.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
serviceAccountName: {{ .Values.serviceAccountName }}
automountServiceAccountToken: false
enableServiceLinks: false
# Before the guard ends: what kubelet waits for, then calls in flight, then what is left over.
terminationGracePeriodSeconds: {{ add (int .Values.preStopSeconds) (int .Values.drainSeconds) 10 }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "egress-guard.selector" . | nindent 8 }}
{{- end }}
