"""What the Helm chart renders, run here: the pod's containers, and the query of its autoscaler."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from guard.processes.loopback import free_port
from tests.e2e.other_user import PLACES, OtherUser, isolates
from tests.e2e.running_guard import (
    ROOT,
    RunningGuard,
    Upstream,
    tool_call,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.processes.loopback import Child

helm = pytest.importorskip("helm_python", reason="helm-python-sdk has no wheel for this machine")

pytestmark = pytest.mark.e2e
HELM = ROOT / "deploy" / "helm"
YAML12 = YAML(typ="safe", pure=True)


class Pod(OtherUser):
    """The directories of a pod, and the containers that the chart renders, run in them."""

    def __init__(self, directory: Path, values: dict[str, Any], redis: str = "embedded") -> None:
        super().__init__(directory, (*PLACES, "/secrets/keys", "/etc/guard/policy"))
        self.redis = redis
        chart = helm.Chart.load(HELM / "egress-guard")
        texts = chart.render(values, name="guard", namespace="agents").values()
        objects = [one for text in texts for one in YAML12.load_all(text) if one]
        maps = {x["metadata"]["name"]: x["data"] for x in objects if x["kind"] == "ConfigMap"}
        workload = next(x for x in objects if x["kind"] == "StatefulSet")
        spec = workload["spec"]["template"]["spec"]
        self._prepare, (self._guard,) = spec["initContainers"][0], spec["containers"]
        self.admin = free_port()
        settings = self.here(maps["guard-settings"]["guard.toml"])
        # Pods have an address each; these share the machine's.
        assert settings.count(":9464") == 1
        settings = settings.replace(":9464", f":{self.admin}")
        (directory / "etc/guard/guard.toml").write_text(settings, encoding="utf-8")
        for name, text in maps["guard-policy"].items():
            (directory / "etc/guard/policy" / name).write_text(text, encoding="utf-8")
        secret = directory / "secrets/keys/label.key"
        secret.write_bytes(os.urandom(32))
        os.chown(secret, 0, 10001)
        secret.chmod(0o440)

    def contained(self, name: str, *command: str) -> Child:
        """Start a command with the environment of the container."""
        given = {x["name"]: x.get("value", self.redis) for x in self._guard["env"]}
        return self.run(name, *command, given=given)

    def prepared(self) -> Child:
        """Return the init container, ended."""
        child = self.contained("prepare", *(self.here(word) for word in self._prepare["command"]))
        child.process.wait(60)
        child.stop()
        return child

    def started(self) -> Child:
        """Return the guard, serving."""
        words = [sys.executable, "-m", "guard", *map(self.here, self._guard["args"])]
        child = self.contained("guard", *words)
        child.wait_ready()
        return child


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that another user can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="guard-pod-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.skipif(
    not isolates(), reason="needs root, unshare, setpriv and a checkout that others may enter"
)
def test_the_pod_serves_as_its_user_on_a_read_only_file_system(
    reachable: Path, upstream: Upstream
) -> None:
    """The init container's script, then the guard with the rendered settings, then SIGTERM."""
    port = free_port()
    server = f"http://127.0.0.1:{upstream.port}/mcp"
    policy = (ROOT / "policies" / "default.yaml").read_text("utf-8")
    values = {
        "listen": "127.0.0.1",
        "replicas": 1,
        "autoscaling": {"enabled": False},
        "listeners": [{"name": "mail", "port": port, "upstream": server}],
        "policy": {"files": {"policy.yaml": policy}},
        "secrets": {"keys": "guard-keys"},
        "settings": {"pep": "lean"},
    }
    pod = Pod(reachable / "pod", values)
    prepared = pod.prepared()
    key = pod.directory / "var/lib/guard/egress-guard/label.key"

    assert prepared.process.returncode == 0, prepared.said()
    assert (key.stat().st_uid, stat.S_IMODE(key.stat().st_mode)) == (10001, 0o600)
    guard = pod.started()
    audit = pod.directory / "var/log/guard/audit.jsonl"
    try:
        running = RunningGuard(guard, port, pod.admin, audit, upstream)
        _, answer = running.post(tool_call())
        owner = Path(f"/proc/{guard.process.pid}").stat().st_uid
        writable = Path(f"/proc/{guard.process.pid}/mountinfo").read_text("utf-8")
    finally:
        guard.process.send_signal(signal.SIGTERM)
        code = guard.process.wait(60)
        guard.stop()

    assert answer["result"]["content"][0]["text"] == "done"
    assert [x["action"] for x in running.audit() if x["event"] == "guard.decision"] == ["allow"]
    assert owner == 10001
    assert re.search(r"^\d+ \d+ \S+ \S+ / ro,", writable, re.MULTILINE)
    assert code == 0, guard.said()
