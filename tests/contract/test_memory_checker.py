"""The operator's checker: only a command that ends well commits a write."""

import json
import sys

import pytest

from guard.core.memory import MemoryClass
from guard.store.memory_stores.recovery import CommandChecker
from tests.staged_writes import FROM_THE_MODEL, staged_write

MADE = staged_write(texts=("Ada prefers tea",), evidence=FROM_THE_MODEL)


@pytest.mark.parametrize(
    ("code", "agrees"),
    [
        pytest.param(None, False, id="does not start"),
        pytest.param("", True, id="ends well"),
        pytest.param("raise SystemExit(1)", False, id="another code"),
        pytest.param("import os; os.kill(os.getpid(), 9)", False, id="a signal"),
        pytest.param("import time; time.sleep(60)", False, id="does not end"),
    ],
)
async def test_only_a_command_that_ends_well_commits(code, agrees):
    """Everything else refuses."""
    command = ["/nowhere/checker"] if code is None else [sys.executable, "-S", "-c", code]
    seconds = 0.2 if "sleep" in str(code) else 60.0

    assert await CommandChecker(command, {}, seconds)(MADE, MemoryClass.L2) is agrees


async def test_the_command_is_told_what_is_to_be_kept(tmp_path):
    """The texts, where they go and what they are made of."""
    told = tmp_path / "told.json"
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    command = [sys.executable, "-S", "-c", code, str(told)]

    assert await CommandChecker(command, {}, 60.0)(MADE, MemoryClass.L2)

    assert json.loads(told.read_text(encoding="utf-8")) == {
        "decision_id": "c1",
        "principal": "p",
        "tool": "save",
        "store": "facts",
        "class": "L2",
        "source_types": ["model_inference"],
        "texts": ["Ada prefers tea"],
    }
