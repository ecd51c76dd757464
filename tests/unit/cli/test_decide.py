"""``guard decide``: what it needs, before anything listens."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from guard import cli

POLICY = str(Path(__file__).parents[3] / "policies" / "default.yaml")
UNIX = ("--listen", "unix:/run/guard/decide.sock")
MAIL = ("--server", "mail=http://127.0.0.1:9000/mcp")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*UNIX, *MAIL), "--policy"),
        (("-p", POLICY, *MAIL), "--listen"),
        (("-p", POLICY, *UNIX), "--server"),
        (("-p", POLICY, *MAIL, "--listen", "127.0.0.1:9"), "--front-secret"),
        (("-p", POLICY, *MAIL, "--listen", "unix:decide.sock"), "absolute"),
        (("-p", POLICY, *MAIL, "--listen", "somewhere"), "HOST:PORT"),
        (("-p", POLICY, *UNIX, *MAIL, *MAIL), "a name of its own"),
        (("-p", POLICY, *UNIX, "--server", "http://127.0.0.1:9000"), "NAME=URL"),
        (("-p", POLICY, *UNIX, "--server", "mail=ftp://x"), "NAME=URL"),
        (("-p", POLICY, *UNIX, *MAIL, "--egress", "unix:egress.sock"), "absolute"),
    ],
)
def test_what_is_missing_or_wrong_is_invalid_input(words: tuple[str, ...], said: str):
    """With what would be right, and exit code 3."""
    result = CliRunner().invoke(cli.app, ["decide", *words])

    assert result.exit_code == 3
    assert said in result.output


def test_listeners_of_the_guard_s_own_are_another_command(monkeypatch: pytest.MonkeyPatch):
    """They would be served without an Envoy."""
    monkeypatch.setenv("GUARD_REVERSE", '["127.0.0.1:0=http://127.0.0.1:1"]')

    result = CliRunner().invoke(cli.app, ["decide", "-p", POLICY, *UNIX, *MAIL])

    assert result.exit_code == 3
    assert "guard run" in result.output
