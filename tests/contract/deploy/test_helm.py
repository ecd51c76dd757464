"""The Helm chart, rendered by Helm itself: valid objects, a guard that would start, no way around.

`helm-python-sdk` carries Helm's own library; `kubernetes-validate` the schemas of the API.
"""

import functools
import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from guard.credentials.label_key import audit_key_path, label_key_path
from guard.settings import load_settings

helm = pytest.importorskip("helm_python", reason="helm-python-sdk has no wheel for this machine")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
CHART = DEPLOY / "helm" / "egress-guard"
YAML12 = YAML(typ="safe", pure=True)
KUBERNETES = ("1.29", "1.37")
"""The oldest that the chart names, and the newest that is known."""
GATEWAY = YAML12.load(CHART / "ci" / "gateway.yaml")
SIDECAR = YAML12.load(CHART / "ci" / "sidecar.yaml")
SERVERS = [
    {"name": "mail", "port": 8081, "upstream": "http://mail.tools:8000/mcp"},
    {"name": "files", "port": 8082, "path": "a", "upstream": "http://files.tools:8000/sse"},
    {"name": "notes", "port": 8082, "path": "b", "upstream": "https://notes.example/mcp"},
]
ENVOY = YAML12.load(CHART / "ci" / "envoy.yaml")
EVERYTHING = GATEWAY | {
    "listeners": SERVERS,
    "policy": {"files": {"policy.yaml": "version: 1\n", "policy_test.yaml": "tests: []\n"}},
    "secrets": {"keys": "k", "authority": "a", "credentials": "c"},
    "credentialFiles": ["credentials.toml", "prompt-credentials.toml"],
    "settings": {"held_limit": "128m", "state_timeout": 0.5},
    "durability": "replicated",
    "workers": 2,
    "serviceMonitor": {"enabled": True},
    "imagePullSecrets": [{"name": "registry"}],
    "podLabels": {"team": "agents"},
    "podAnnotations": {"note": "x"},
    "nodeSelector": {"kubernetes.io/arch": "arm64"},
    "tolerations": [{"key": "agents", "operator": "Exists"}],
    "state": {"persistent": True, "storageClassName": "fast", "size": "20Gi"},
    "image": {"repository": "registry.example/guard", "digest": "sha256:" + "0" * 64},
    "networkPolicy": {
        "tools": [
            {"name": "mail", "namespace": "tools", "podSelector": {"matchLabels": {"a": "b"}}}
        ]
    },
}
ALONE = {
    "listeners": SERVERS[:1],
    "policy": {"existingConfigMap": "p"},
    "replicas": 1,
    "autoscaling": {"enabled": False},
    "state": {"persistent": False},
}
GREEDY = {"runAsUser": 10001, "privileged": True, "capabilities": {"add": ["NET_ADMIN"]}}
SHAPES = {
    "gateway": GATEWAY,
    "sidecar": SIDECAR,
    # What the values of an agent say of its user and its capabilities does not count.
    "greedy": SIDECAR | {"sidecar": {"agent": {"image": "x", "securityContext": GREEDY}}},
    "envoy": ENVOY,
    "everything": EVERYTHING,
    "alone": ALONE,
}


@pytest.fixture(scope="module")
def chart():
    """Return the chart, loaded."""
    return helm.Chart.load(CHART)


def rendered(chart, values):
    """Return the objects that Helm makes of the chart with these values."""
    return _rendered(chart, json.dumps(values))


@functools.cache
def _rendered(chart, values):
    texts = chart.render(json.loads(values), name="guard", namespace="agents").values()
    return [one for text in texts for one in YAML12.load_all(text) if one]


def pod_of(objects):
    """Return the pod that a workload makes."""
    (found,) = [one for one in objects if one["kind"] in {"StatefulSet", "Deployment"}]
    return found["spec"]["template"]["spec"]


def containers(pod):
    """Return every container of a pod by its name."""
    return {one["name"]: one for one in (*pod["initContainers"], *pod["containers"])}


def settings_of(objects, directory, monkeypatch):
    """Return what the guard loads in the container: its file and its environment."""
    maps = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "ConfigMap"}
    config = directory / "guard.toml"
    config.write_text(maps["guard-settings"]["guard.toml"], encoding="utf-8")
    for variable in containers(pod_of(objects))["guard"]["env"]:
        value = variable.get("value", "redis://from.a.secret:6379/0")
        monkeypatch.setenv(variable["name"], value)
    return load_settings(config)


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid(chart, values, version):
    """Strictly: a member that Kubernetes would drop in silence is an error."""
    objects = rendered(chart, values)
    known = [one for one in objects if one["kind"] != "ServiceMonitor"]

    assert len(known) >= 4
    assert "Secret" not in {one["kind"] for one in known}
    for one in known:
        kubernetes_validate.validate(one, version, strict=True)
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(set(names)) == len(names)


def test_helm_finds_nothing_to_complain_about():
    """`helm lint --strict`."""
    report = helm.lint(CHART, GATEWAY, strict=True, namespace="agents")

    assert report["errors"] == []
    assert [m for m in report["messages"] if m["severity"] > 1] == []


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES)
def test_the_settings_are_ones_the_guard_understands(chart, values, tmp_path, monkeypatch):
    """What is mounted as guard.toml is loaded by the guard itself."""
    objects = rendered(chart, values)
    guard = containers(pod_of(objects))["guard"]
    settings = settings_of(objects, tmp_path, monkeypatch)

    command = "decide" if values is ENVOY else "run"
    assert guard["args"] == [command, "--config", "/etc/guard/guard.toml"]
    assert settings.policy == [Path("/etc/guard/policy/policy.yaml")]
    declared = {port["containerPort"] for port in guard["ports"]}
    reverse = [x for x in settings.listeners if x.port]
    assert declared == {x.port for x in reverse} | {
        int(text.rpartition(":")[2]) for text in settings.forward
    } | {settings.admin_address[1]}
    mounts = {m["mountPath"] for m in guard["volumeMounts"]}
    keys = [label_key_path(), audit_key_path(), settings.authority]
    places = [settings.audit, settings.credentials, *keys]
    for path in filter(None, places):
        assert any(path.is_relative_to(place) for place in mounts)
    host = {x.host for x in reverse}
    assert host <= {"127.0.0.1" if values.get("shape") == "sidecar" else "0.0.0.0"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"policy": {}}, "either `policy.files` or"),
        ({"policy": {"files": {"a.yaml": "x"}, "existingConfigMap": "p"}}, "either `policy.files`"),
        ({"forward": {"enabled": False}}, "at least one of `listeners`"),
        ({"redis": {}}, "several pods need one Redis"),
        ({"redis": {"url": "redis://r", "existingSecret": "s"}}, "either `redis.url` or"),
        ({"redis": {"url": "redis://user:secret@r"}}, "redis/url"),
        ({"secrets": {"authority": "a"}}, "same label key"),
        ({"secrets": {"keys": "k"}}, "one authority"),
        ({"credentialFiles": ["credentials.toml"]}, "secrets.credentials"),
        ({"settings": {"audit": "x"}}, "`settings.audit` is made from other values"),
        ({"shape": "sidecar"}, "sidecar.agent"),
        ({"shape": "sidecar", "sidecar": {"agentUser": 10001}}, "agentUser"),
        ({"sidecar": {"agentUser": 0}}, "agentUser"),
        ({"shape": "daemon"}, "shape"),
        ({"shape": "envoy"}, "no `forward`"),
        (ENVOY | {"forward": {"enabled": False}, "envoy": {"tlsSecret": "t"}}, "existingConfigMap"),
        ({"settings": {"server": ["x=http://y"]}}, "`settings.server` is made"),
        ({"drainSecond": 3}, "drainSecond"),
        ({"preStopSeconds": 0}, "preStopSeconds"),
        ({"listeners": [{"name": "x", "port": 1, "upstream": "ftp://x"}]}, "upstream"),
    ],
)
def test_what_would_be_unsafe_is_refused(chart, values, says):
    """Before anything is installed, with the reason."""
    with pytest.raises(helm.HelmError) as refused:
        rendered(chart, GATEWAY | values)

    assert says in str(refused.value)


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES)
def test_no_container_has_more_rights_than_it_needs(chart, values):
    """No root but for the packet rules, nothing writable but volumes, no token of the cluster."""
    pod = pod_of(rendered(chart, values))

    assert pod["automountServiceAccountToken"] is False
    redis = next((x for x in containers(pod)["guard"]["env"] if x["name"] == "GUARD_REDIS"), {})
    assert "value" not in redis or "@" not in redis["value"], "a password comes from a secret"
    for name, one in containers(pod).items():
        security = {**pod["securityContext"], **one["securityContext"]}
        assert security["allowPrivilegeEscalation"] is False
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        added = {"add": ["NET_ADMIN"]} if name == "lock" else {}
        assert security["capabilities"] == {"drop": ["ALL"]} | added
        if name != "lock":
            assert security["runAsNonRoot"] is True
            assert security["runAsUser"] == (2000 if name == "agent" else 10001)
        if name != "agent":
            assert security["readOnlyRootFilesystem"] is True
            assert one["resources"]["limits"]["memory"]
    used = {m["name"] for one in containers(pod).values() for m in one.get("volumeMounts", ())}
    declared = {v["name"] for v in pod["volumes"]} | ({"state"} if values is not ALONE else set())
    assert used <= declared


def test_the_agent_of_a_sidecar_starts_last_and_behind_the_rules(chart):
    """First the packet rules, then the keys, then a guard that is ready, then the agent."""
    objects = rendered(chart, SIDECAR)
    pod = pod_of(objects)
    rules = next(x for x in objects if x["metadata"]["name"] == "guard-lock")["data"]

    assert [one["name"] for one in pod["initContainers"]] == ["lock", "prepare", "guard"]
    assert containers(pod)["guard"]["restartPolicy"] == "Always"
    assert containers(pod)["guard"]["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert [one["name"] for one in pod["containers"]] == ["agent"]
    text = rules["agent-egress.nft"]
    assert "define agent = 2000\n" in text
    assert "define guard_ports = { 9001, 9002 }\n" in text
    shipped = (DEPLOY / "network" / "agent-egress.nft").read_text(encoding="utf-8")
    assert text.partition("table inet")[2].strip() == shipped.partition("table inet")[2].strip()


def test_envoy_and_the_guard_of_a_pod_meet_in_a_directory_of_theirs(chart, tmp_path, monkeypatch):
    """The socket is deploy/envoy/envoy.yaml's; Envoy is there before and after the guard."""
    objects = rendered(chart, ENVOY)
    pod = pod_of(objects)
    envoy, guard = containers(pod)["envoy"], containers(pod)["guard"]
    settings = settings_of(objects, tmp_path, monkeypatch)
    shipped = (DEPLOY / "envoy" / "envoy.yaml").read_text(encoding="utf-8")

    assert [one["name"] for one in pod["initContainers"]] == ["prepare", "envoy"]
    assert envoy["restartPolicy"] == "Always"
    assert [one.partition("=")[0] for one in settings.server] == ["mail", "files"]
    (listen,) = settings.listen
    assert listen.removeprefix("unix:") in shipped
    for one in (envoy, guard):
        assert "/run" in {m["mountPath"] for m in one["volumeMounts"]}
    assert "chmod 00700 /run/guard" in containers(pod)["prepare"]["command"][-1]
    service = next(
        x for x in objects if x["metadata"]["name"] == "guard" and x["kind"] == "Service"
    )
    assert [(p["port"], p["protocol"]) for p in service["spec"]["ports"]] == [
        (8443, "TCP"),
        (8443, "UDP"),
    ]


def test_the_network_policy_without_helm_is_the_charts(chart):
    """deploy/network/networkpolicy.yaml is what `helm template` makes for a forward listener."""
    made = [x for x in rendered(chart, GATEWAY) if x["kind"] == "NetworkPolicy"]
    shipped = list(YAML12.load_all(DEPLOY / "network" / "networkpolicy.yaml"))

    assert len(made) == 2
    assert made == shipped


def test_the_values_in_the_document_are_values_of_the_chart(chart):
    """Whoever copies them gets objects that Kubernetes takes."""
    text = (DEPLOY.parent / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")
    blocks = re.findall(r'^```yaml title="values.yaml"\n(.*?)^```', text, re.MULTILINE | re.DOTALL)

    assert {YAML12.load(block).get("shape") for block in blocks} == {None, "envoy", "sidecar"}
    for block in blocks:
        for one in rendered(chart, YAML12.load(block)):
            kubernetes_validate.validate(one, KUBERNETES[0], strict=True)
