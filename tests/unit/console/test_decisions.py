"""The index over the audit log: appended lines, rotation, erasure, filters, sums."""

import json
import sqlite3
import stat
from contextlib import ExitStack, closing

import pytest

from guard.console.decisions import DecisionIndex
from tests.unit.console.conftest import line


def taken_in(index):
    """Return the decisions that one batch adds, the oldest first."""
    count = index.take_in()
    return sorted(index.page({}, limit=1000), key=lambda row: row["id"])[-count:] if count else []


@pytest.fixture
def opened():
    """Open indexes; they are closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda log: stack.enter_context(closing(DecisionIndex(log)))


def test_lines_are_taken_in_once_and_whole(log, opened):
    """What was read is not read again, not by a new process either; half a line waits."""
    index = opened(log)
    assert [row["decision"] for row in taken_in(index)] == ["d0", "d1", "d2"]
    with log.open("a", encoding="utf-8") as file:
        file.write(line(3)[:40])
        file.flush()
        assert index.take_in() == 0
        file.write(line(3)[40:])
    again = opened(log)
    assert [row["decision"] for row in taken_in(again)] == ["d3"]
    assert [row["decision"] for row in again.page({})] == ["d3", "d2", "d1", "d0"]
    assert stat.S_IMODE(index.path.stat().st_mode) == 0o600


def test_a_rotated_log_is_read_to_its_end_first(log, opened):
    """Lines that came before the rotation and were not read yet are not lost."""
    index = opened(log)
    index.take_in()
    with log.open("a", encoding="utf-8") as file:
        file.write(line(3))
    log.rename(log.with_name("audit.jsonl.1"))
    log.write_text(line(4), "utf-8")
    taken = [row["decision"] for _ in range(3) for row in taken_in(index)]
    assert taken == ["d3", "d4"]


def test_what_is_erased_from_the_log_is_erased_here(log, opened):
    """The erasure's line takes the decisions away, and their text from the file."""
    index = opened(log)
    index.take_in()
    erasure = {"event": "guard.erasure", "reason": "asked for", "lines": [["L", 1]]}
    with log.open("a", encoding="utf-8") as file:
        file.write(line(3, principal="zoe-the-erased"))
        file.write(json.dumps({**erasure, "lines": [["L", 1], ["L", 3]]}) + "\n")
    held = sqlite3.connect(index.path)
    held.execute("BEGIN")
    held.execute("SELECT * FROM decisions").fetchall()
    index.take_in()
    held.close()
    index.take_in()
    files = log.parent.glob(f"{index.path.name}*")
    assert [one.name for one in files if b"zoe-the-erased" in one.read_bytes()] == []
    assert [row["decision"] for row in index.page({})] == ["d2", "d0"]
    assert index.events()[0]["detail"]["lines"] == 2
