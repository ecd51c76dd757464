"""What the command line imports for help and completion, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from guard import cli

ROOT = Path(__file__).parents[2]
HEAVY = {"mitmproxy", "numpy", "onnxruntime", "redis", "hiredis", "mcp", "cryptography"}
HEAVY |= {"guard.policy", "guard.settings", "guard.cli.run"}


def loaded_after(*words):
    """Return the modules that a command has imported when it ends."""
    script = (
        "import sys; from guard.__main__ import main\ntry: main()\nfinally: print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words", [("--help",), ("version",), ("policy", "--help"), ("lab", "--help")], ids=" ".join
)
def test_help_imports_nothing_heavy(words):
    """A list of commands is no reason to load a proxy, a model runtime or a schema library."""
    loaded = loaded_after(*words)

    assert "guard.cli" in loaded
    assert HEAVY & loaded == set()


def test_shells_complete_commands():
    """Old spellings work, and are not offered."""
    done = subprocess.run(
        [sys.executable, "-m", "guard"],
        env={"_GUARD_COMPLETE": "complete_bash", "COMP_WORDS": "guard ", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    offered = set(done.stdout.split())
    assert {"run", "policy", "lab"} <= offered
    assert offered.isdisjoint(cli.ALIASES)
