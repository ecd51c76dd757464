"""``guard init`` against a running MCP server, and a policy that then works."""

import json
import os
import subprocess
import sys
from pathlib import Path

from guard.adapters.loopback import Rig

ROOT = Path(__file__).resolve().parents[2]


def run(*words, cwd):
    """Run a command of the guard."""
    return subprocess.run(
        [sys.executable, "-m", "guard", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_a_clients_configuration_becomes_a_policy_that_passes_its_tests(tmp_path):
    """Listed through the official SDK, written once, valid, tested, and never overwritten."""
    with Rig() as rig:
        port = rig.server("guard.lab.fixture_server")
        servers = {
            "tools": {"url": f"http://127.0.0.1:{port}/mcp"},
            "files": {"command": "no-such-command"},
        }
        config = tmp_path / "mcp.json"
        config.write_text(json.dumps({"mcpServers": servers}), "utf-8")
        made = run("init", str(config), "--domain", "corp.example", cwd=tmp_path)
        again = run("init", str(config), cwd=tmp_path)

    assert made.returncode == 0, made.stderr
    assert "skipped `files`" in made.stdout
    assert f"--reverse 127.0.0.1:9001=http://127.0.0.1:{port}" in made.stdout
    assert again.returncode == 3
    assert "exists" in again.stderr
    assert run("check", "policy.yaml", cwd=tmp_path).returncode == 0
    tested = run("test", "policy_test.yaml", cwd=tmp_path)
    assert tested.returncode == 0, tested.stdout


def test_a_server_that_is_not_there_is_said(tmp_path):
    """Nothing is written."""
    made = run("init", "http://127.0.0.1:9/mcp", cwd=tmp_path)

    assert made.returncode == 3
    assert "lists no tools" in made.stderr
    assert list(tmp_path.iterdir()) == []
