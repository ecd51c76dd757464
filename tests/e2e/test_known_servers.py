"""``guard init`` over the packages of the servers that it knows (`make known-servers`).

A client's configuration starts each as its documentation says; ``npx`` and ``uvx`` start what the
make target installed.  What a server lists is compared with the truth about its tools that was
written down before `init` knew any (``guard/lab/adopt/init_truth``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from guard.lab.adopt.truth import outcome, truths
from guard.policy_files import load_policies

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/known_servers"
ENVIRONMENT = {
    "github": {"GITHUB_PERSONAL_ACCESS_TOKEN": "nobody"},
    "slack": {"SLACK_BOT_TOKEN": "xoxb-nobody", "SLACK_TEAM_ID": "T0"},
    "mem0": {"MEM0_API_KEY": "m0-nobody"},
}
"""What each wants to start at all; no account is used."""
NPX = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
words = [word for word in sys.argv[1:] if word not in ("-y", "--yes")]
name = words[0] if words[0].rfind("@") <= 0 else words[0][: words[0].rfind("@")]
package = Path({str(HERE)!r}, "node_modules", name)
programs = json.loads((package / "package.json").read_text())["bin"]
program = programs if isinstance(programs, str) else next(iter(programs.values()))
os.execvp("node", ["node", str(package / program), *words[1:]])
"""
UVX = f"""#!{sys.executable}
import os, sys
name, *words = sys.argv[1:]
program = os.path.join({str(HERE)!r}, ".environments", name, "bin", name)
os.execv(program, [program, *words])
"""
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (HERE / ".installed").exists(), reason="`make known-servers` installs the servers"
    ),
]
NOT_STARTED = {"graphiti", "qdrant"}
"""Graphiti's server is in no registry, and Qdrant's downloads an embedding model at its start."""
KNOWN = {name: truth for name, truth, _ in truths() if name not in NOT_STARTED}


@pytest.fixture
def home(tmp_path):
    """A directory to start servers in, with the two commands that start them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"npx": NPX, "uvx": UVX}.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    keys = {"installed": {"client_id": "nobody", "client_secret": "x", "redirect_uris": ["x"]}}
    (tmp_path / ".gmail-mcp").mkdir()
    (tmp_path / ".gmail-mcp/gcp-oauth.keys.json").write_text(json.dumps(keys), "utf-8")
    (tmp_path / "work").mkdir()
    return tmp_path


def init(home, name, launch):
    """Return what `guard init` says of one server that it starts."""
    launch = [word.replace("/srv/", f"{home}/") for word in launch]
    entry = {"command": launch[0], "args": launch[1:], "env": ENVIRONMENT.get(name, {})}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {name: entry}}), "utf-8")
    return subprocess.run(
        [sys.executable, "-m", "guard", "init", "mcp.json", "--start", "--domain", "corp.example"],
        cwd=home,
        env={
            **os.environ,
            "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_server_gets_a_policy_that_is_right_about_its_tools(home, name):
    """As its package lists them now; nothing is mapped to less than it does."""
    truth = KNOWN[name]
    made = init(home, name, truth["launch"])
    assert made.returncode == 0, made.stderr
    assert "skipped" not in made.stderr, made.stderr

    policy = load_policies([home / "policy.yaml"])
    upstream = f"stdio:{name}"
    found = {
        tool: outcome(said, policy.mapping(tool, upstream, f"{upstream}/"))[0]
        for tool, said in truth["tools"].items()
    }
    assert "looser" not in found.values(), found
    right = sum(one == "right" for one in found.values())
    assert right >= 0.8 * len(found), found
