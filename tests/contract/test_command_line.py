"""What the command line, a worker and the library import, each in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from guard import cli

ROOT = Path(__file__).parents[2]
HEAVY = {"mitmproxy", "numpy", "onnxruntime", "redis", "hiredis", "mcp", "cryptography"}
HEAVY |= {"guard.policy", "guard.settings", "guard.cli.run"}
RARE = {"redis", "fakeredis", "jwt", "sqlite3", "anyio", "mitmproxy", "opentelemetry"}
MODEL_AND_STORE = {"onnxruntime", "numpy", "redis", "hiredis", "mitmproxy", "mcp"}
COMMAND = "import sys; sys.argv[1:] = {!r}; from guard.__main__ import main; main()"
WORKER = """
import guard.runtime.worker, guard.runtime.serving, guard.pep.lean.pep
from guard.store.topology import open_client
open_client("unix:///run/x/redis.sock")
"""


@pytest.mark.parametrize(
    ("code", "unneeded"),
    [
        *(
            pytest.param(COMMAND.format(words.split()), HEAVY, id=words)
            for words in ("--help", "version", "policy --help", "lab --help")
        ),
        pytest.param(
            COMMAND.format(["run", "--help"]),
            {"mcp", "sklearn", "lab.cli", "guard.demo"},
            id="run --help",
        ),
        pytest.param("import guard.cli.agents", MODEL_AND_STORE, id="wrapper"),
        pytest.param(WORKER, RARE, id="worker"),
        pytest.param("import guard", {"guard.in_process", "guard.inference"}, id="library"),
    ],
)
def test_a_process_loads_only_what_it_needs(code, unneeded):
    """Each module costs time at every start and megabytes in every wrapper and worker."""
    script = "import atexit, sys\natexit.register(lambda: print(*sys.modules))\n" + code
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(done.stdout.splitlines()[-1].split())

    assert "guard" in loaded
    assert unneeded & loaded == set()


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
