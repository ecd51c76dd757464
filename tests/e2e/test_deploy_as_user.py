"""The container's command line and the systemd unit, as the unprivileged user that they name."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from guard.processes.loopback import free_port
from tests.e2e.other_user import OtherUser, isolates
from tests.e2e.running_guard import ROOT, RunningGuard, Upstream, tool_call

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not isolates(), reason="needs root, unshare, setpriv and a checkout that others may enter"
    ),
]
DEPLOY = ROOT / "deploy"
HOME = "/nonexistent"


@pytest.fixture
def user() -> Iterator[OtherUser]:
    """A user with a policy file, in directories that this user can enter."""
    with tempfile.TemporaryDirectory(prefix="guard-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        user = OtherUser(Path(made) / "root")
        for place in ("var/lib/guard", "var/log/guard"):
            # As the image and systemd make them.
            os.chown(user.directory / place, 10001, 10001)
            (user.directory / place).chmod(0o700)
        policies = user.directory / "etc/guard/policies"
        policies.mkdir()
        text = (ROOT / "policies" / "default.yaml").read_text("utf-8")
        (policies / "default.yaml").write_text(text, encoding="utf-8")
        (user.directory / "etc/guard/policy.yaml").write_text(text, encoding="utf-8")
        yield user


def served(
    user: OtherUser, upstream: Upstream, words: list[str], environment: dict[str, str], port: int
) -> None:
    """Start a guard, send one call through it and stop it."""
    admin = free_port()
    given = [re.sub(r".*:9464$", f"127.0.0.1:{admin}", user.here(word)) for word in words]
    guard = user.run("guard", sys.executable, "-m", "guard", *given, given=environment)
    audit = user.directory / "var/log/guard/audit.jsonl"
    try:
        guard.wait_ready()
        running = RunningGuard(guard, port, admin, audit, upstream)
        _, answer = running.post(tool_call())
    finally:
        guard.process.send_signal(signal.SIGTERM)
        code = guard.process.wait(60)
        guard.stop()

    assert answer["result"]["content"][0]["text"] == "done"
    assert [x["action"] for x in running.audit() if x["event"] == "guard.decision"] == ["allow"]
    assert code == 0, guard.said()
    assert list((user.directory / "var/lib/guard").rglob("audit.key"))


def test_the_command_of_the_compose_file_serves(user: OtherUser, upstream: Upstream) -> None:
    """The image's environment and the command, on an embedded Redis."""
    port = free_port()
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").rpartition("\nFROM ")[2].splitlines()
    environment = {"HOME": HOME}
    for line in (x.removeprefix("ENV ") for x in lines if x.startswith("ENV ")):
        environment |= dict(one.split("=", 1) for one in line.split() if "PATH=" not in one)
    compose = YAML(typ="safe", pure=True).load((DEPLOY / "compose.yaml").read_text("utf-8"))
    words = compose["services"]["guard"]["command"]
    listener = f"127.0.0.1:{port}=http://127.0.0.1:{upstream.port}/mcp"
    changed = {"redis://redis:6379/0": "embedded"}
    words = [listener if "=${" in word else changed.get(word, word) for word in words]

    served(user, upstream, words, environment, port)


def test_the_service_unit_serves(user: OtherUser, upstream: Upstream) -> None:
    """The unit's command and environment, with the settings that its head suggests."""
    port = free_port()
    unit = (DEPLOY / "guard.service").read_text("utf-8")
    suggested = re.findall(r"^#   (\w+ = .*)$", unit, re.MULTILINE)
    settings = "\n".join(suggested).replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    settings = settings.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{upstream.port}/mcp")
    (user.directory / "etc/guard/guard.toml").write_text(user.here(settings), encoding="utf-8")
    environment = {"HOME": HOME}
    for line in re.findall(r"^Environment=(.*)$", unit, re.MULTILINE):
        environment |= dict(one.split("=", 1) for one in line.split())
    (command,) = re.findall(r"^ExecStart=\S+ (.*)$", unit, re.MULTILINE)

    served(user, upstream, [*command.split(), "--admin", "127.0.0.1:9464"], environment, port)
