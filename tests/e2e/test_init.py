"""``guard init`` against running MCP servers, and a guard that then stands in front of them."""

import json
import re
from contextlib import chdir

from typer.testing import CliRunner

from guard import cli
from guard.processes.loopback import Rig

SECRET = "ghp_" + "0123456789abcdef"


def run(*words, cwd):
    """Run a command of the guard in a directory."""
    with chdir(cwd):
        return CliRunner().invoke(cli.app, words, env={"XDG_STATE_HOME": str(cwd / "state")})


def test_a_clients_configuration_becomes_a_policy_that_passes_its_tests(tmp_path):
    """Listed through the official SDK, valid, tested, added to, never overwritten."""
    with Rig() as rig:
        port = rig.server("lab.fixture_server")
        url = f"http://127.0.0.1:{port}/mcp"
        servers = {
            "tools": {"url": url, "headers": {"x-key": SECRET}},
            "files": {"command": "no-such-command"},
            "gone": {"url": "http://127.0.0.1:9/mcp"},
        }
        config = tmp_path / "mcp.json"
        before = "// mine\n" + json.dumps({"mcpServers": servers})
        config.write_text(before, "utf-8")
        made = run("init", str(config), "--domain", "corp.example", "--write-client", cwd=tmp_path)
        after = config.read_text("utf-8")
        added = {"tools": {"url": url}, "more": {"url": url.replace("127.0.0.1", "localhost")}}
        (tmp_path / "more.json").write_text(json.dumps({"mcpServers": added}), "utf-8")
        merged = run("init", "more.json", cwd=tmp_path)
        undone = run("init", str(config), "--undo", cwd=tmp_path)

    assert [one.exit_code for one in (made, merged, undone)] == [0, 0, 0], made.stderr
    for left_out in ("files", "gone"):
        assert f"skipped `{left_out}`" in made.stderr
    assert f"--reverse 127.0.0.1:9001/tools={url}" in made.stdout
    policy = (tmp_path / "policy.yaml").read_text("utf-8")
    assert re.findall(r"- name: (\S+)", policy) == ['"tools"', '"more"']
    assert after == before.replace(f"http://127.0.0.1:{port}/mcp", "http://127.0.0.1:9001/tools")
    assert config.read_text("utf-8") == before
    assert SECRET not in policy + made.stdout + made.stderr
    assert run("check", "policy.yaml", cwd=tmp_path).exit_code == 0
    tested = run("test", "policy_test.yaml", cwd=tmp_path)
    assert tested.exit_code == 0, tested.stdout
