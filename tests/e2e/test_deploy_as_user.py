"""The container's command line, the systemd unit and the Helm chart's pod, as their own user."""

import os
import re
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from guard.processes.loopback import free_port
from tests.e2e.other_user import PLACES, OtherUser, isolates
from tests.e2e.running_guard import ROOT, RunningGuard, tool_call

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not isolates(), reason="needs root, unshare, setpriv and a checkout that others may enter"
    ),
]
DEPLOY = ROOT / "deploy"
HOME = {"HOME": "/nonexistent"}
POLICY = (ROOT / "policies" / "default.yaml").read_text("utf-8")
YAML12 = YAML(typ="safe", pure=True)


@pytest.fixture
def place():
    """A directory that another user can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="guard-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made) / "root"


def serves(user, upstream, words, given, port):
    """Start a guard, send one call through it and stop it."""
    admin = free_port()
    words = [re.sub(r".*:9464$", f"127.0.0.1:{admin}", user.here(word)) for word in words]
    settings = user.directory / "etc/guard/guard.toml"
    if settings.exists():
        # Pods have an address each; these share the machine's.
        settings.write_text(settings.read_text("utf-8").replace(":9464", f":{admin}"), "utf-8")
    guard = user.run("guard", sys.executable, "-m", "guard", *words, given=given)
    audit = user.directory / "var/log/guard/audit.jsonl"
    try:
        guard.wait_ready()
        running = RunningGuard(guard, port, admin, audit, upstream)
        _, answer = running.post(tool_call())
        process = Path(f"/proc/{guard.process.pid}")
        owner, mounts = process.stat().st_uid, (process / "mountinfo").read_text("utf-8")
    finally:
        code = guard.stop(60)

    assert answer["result"]["content"][0]["text"] == "done"
    assert [x["action"] for x in running.audit() if x["event"] == "guard.decision"] == ["allow"]
    assert (owner, code) == (10001, 0), guard.said()
    assert re.search(r"^\d+ \d+ \S+ \S+ / ro,", mounts, re.MULTILINE)
    assert list((user.directory / "var/lib/guard").rglob("audit.key"))


def variables(lines):
    """Return the variables of lines with assignments."""
    words = (word for line in lines for word in line.split() if "PATH=" not in word)
    return HOME | dict(word.split("=", 1) for word in words)


def of_the_container(port, server):
    """Return the command of the compose file and the environment of the image."""
    image = (DEPLOY / "Dockerfile").read_text("utf-8").rpartition("\nFROM ")[2]
    compose = YAML12.load((DEPLOY / "compose.yaml").read_text("utf-8"))
    words = compose["services"]["guard"]["command"]
    listener = f"127.0.0.1:{port}={server}"
    changed = {"redis://redis:6379/0": "embedded"}
    words = [listener if "=${" in word else changed.get(word, word) for word in words]
    return words, variables(re.findall(r"^ENV (.*)$", image, re.MULTILINE)), ""


def of_the_unit(port, server):
    """Return the unit's command and environment, and the settings that its head suggests."""
    unit = (DEPLOY / "guard.service").read_text("utf-8")
    settings = "\n".join(re.findall(r"^#   (\w+ = .*)$", unit, re.MULTILINE))
    settings = settings.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    settings = settings.replace("http://127.0.0.1:8000", server)
    (command,) = re.findall(r"^ExecStart=\S+ (.*)$", unit, re.MULTILINE)
    given = variables(re.findall(r"^Environment=(.*)$", unit, re.MULTILINE))
    return [*command.split(), "--admin", "127.0.0.1:9464"], given, settings


@pytest.mark.parametrize("form", [of_the_container, of_the_unit])
def test_the_command_of_a_deployment_serves(place, upstream, form):
    """On an embedded Redis, with directories as the image and systemd make them."""
    port, user = free_port(), OtherUser(place)
    for one in ("var/lib/guard", "var/log/guard"):
        os.chown(place / one, 10001, 10001)
        (place / one).chmod(0o700)
    (place / "etc/guard/policies").mkdir()
    for name in ("policies/default.yaml", "policy.yaml"):
        (place / "etc/guard" / name).write_text(POLICY, encoding="utf-8")
    words, given, settings = form(port, f"http://127.0.0.1:{upstream.port}/mcp")
    if settings:
        (place / "etc/guard/guard.toml").write_text(user.here(settings), encoding="utf-8")

    serves(user, upstream, words, given, port)


def test_the_pod_of_the_chart_serves(place, upstream):
    """The init container's script, then the guard with the rendered settings, then SIGTERM."""
    helm = pytest.importorskip("helm_python")
    port, server = free_port(), f"http://127.0.0.1:{upstream.port}/mcp"
    values = {
        "listen": "127.0.0.1",
        "replicas": 1,
        "autoscaling": {"enabled": False},
        "listeners": [{"name": "mail", "port": port, "upstream": server}],
        "policy": {"files": {"policy.yaml": POLICY}},
        "secrets": {"keys": "guard-keys"},
        "settings": {"pep": "lean"},
    }
    chart = helm.Chart.load(DEPLOY / "helm" / "egress-guard")
    texts = chart.render(values, name="guard", namespace="agents").values()
    objects = [one for text in texts for one in YAML12.load_all(text) if one]
    maps = {x["metadata"]["name"]: x["data"] for x in objects if x["kind"] == "ConfigMap"}
    workload = next(x for x in objects if x["kind"] == "StatefulSet")
    spec = workload["spec"]["template"]["spec"]
    init, (container,) = spec["initContainers"][0], spec["containers"]
    user = OtherUser(place, (*PLACES, "/secrets/keys", "/etc/guard/policy"))
    for name, text in maps["guard-policy"].items():
        (place / "etc/guard/policy" / name).write_text(text, encoding="utf-8")
    settings = user.here(maps["guard-settings"]["guard.toml"])
    (place / "etc/guard/guard.toml").write_text(settings, encoding="utf-8")
    secret = place / "secrets/keys/label.key"
    secret.write_bytes(os.urandom(32))
    os.chown(secret, 0, 10001)
    secret.chmod(0o440)
    given = {x["name"]: x.get("value", "embedded") for x in container["env"]}
    prepare = user.run("prepare", *map(user.here, init["command"]), given=given)
    prepared = prepare.process.wait(60)
    prepare.stop()
    key = place / "var/lib/guard/egress-guard/label.key"

    assert prepared == 0, prepare.said()
    assert (key.stat().st_uid, stat.S_IMODE(key.stat().st_mode)) == (10001, 0o600)
    serves(user, upstream, container["args"], given, port)
