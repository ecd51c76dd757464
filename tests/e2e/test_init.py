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
        servers = {
            "tools": {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"x-key": SECRET}},
            "files": {"command": "no-such-command"},
            "gone": {"url": "http://127.0.0.1:9/mcp"},
        }
        config = tmp_path / "mcp.json"
        before = "// mine\n" + json.dumps({"mcpServers": servers})
        config.write_text(before, "utf-8")
        made = run("init", str(config), "--domain", "corp.example", "--write-client", cwd=tmp_path)
        after = config.read_text("utf-8")
        again = run("init", str(config), cwd=tmp_path)
        again_tools = {"url": f"http://127.0.0.1:{port}/mcp"}
        other = rig.server("lab.fixture_server")
        added = {"tools": again_tools, "more": {"url": f"http://127.0.0.1:{other}/mcp"}}
        more = json.dumps({"mcpServers": added})
        (tmp_path / "more.json").write_text(more, "utf-8")
        merged = run("init", "more.json", cwd=tmp_path)
        undone = run("init", str(config), "--undo", cwd=tmp_path)

    assert made.exit_code == 0, made.stderr
    assert "skipped `files`" in made.stderr
    assert "skipped `gone`" in made.stderr
    assert f"--reverse 127.0.0.1:9001/tools=http://127.0.0.1:{port}/mcp" in made.stdout
    assert again.exit_code == 3, "every server that is left out is still unreachable"
    assert "skipped `gone`" in again.stderr
    assert re.search(r"^tools +a question about each tool +0 +\d+  no$", made.stdout, re.MULTILINE)
    assert re.search(r"^files +nothing +it is a command", made.stdout, re.MULTILINE)
    assert merged.exit_code == 0, merged.stderr
    policy = (tmp_path / "policy.yaml").read_text("utf-8")
    assert policy.startswith("# Proposed by `guard init`.")
    assert [line.split(": ")[1] for line in policy.splitlines() if "- name:" in line] == [
        '"tools"', '"more"'
    ]  # fmt: skip
    assert after == before.replace(f"http://127.0.0.1:{port}/mcp", "http://127.0.0.1:9001/tools")
    assert undone.exit_code == 0, undone.stderr
    assert config.read_text("utf-8") == before
    written = [path.read_text("utf-8") for path in tmp_path.glob("policy*.yaml")]
    assert not any(SECRET in text for text in (*written, made.stdout, made.stderr))
    assert run("check", "policy.yaml", cwd=tmp_path).exit_code == 0
    tested = run("test", "policy_test.yaml", cwd=tmp_path)
    assert tested.exit_code == 0, tested.stdout
