"""The index over the audit log: appended lines, rotation, erasure, filters, sums."""

from __future__ import annotations

import json
import sqlite3
import stat
from datetime import UTC, datetime

import pytest

from guard.console.decisions import DecisionIndex
from tests.unit.console.conftest import line

HOUR = datetime(2023, 11, 14, 22, tzinfo=UTC).timestamp()


def taken_in(index):
    """Return the decisions that one batch adds, the oldest first."""
    count = index.take_in()
    return sorted(index.page({}, limit=1000), key=lambda row: row["id"])[-count:] if count else []


@pytest.fixture
def opened():
    """Open indexes; they are closed at the end of the test."""
    found = []

    def index(log):
        found.append(DecisionIndex(log))
        return found[-1]

    yield index
    for one in found:
        one.close()


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


def test_no_line_keeps_what_comes_after_it_from_being_read(log, opened):
    """Halves of surrogate pairs become question marks; what is no JSON, or too deep, is counted."""
    index = opened(log)
    index.take_in()
    odd = {**json.loads(line(3)), "tool": "mail\ud800", "reasons": [{"code": "\udfff"}]}
    deep = {**json.loads(line(4)), "errors": json.loads("[" * 300 + "]" * 300)}
    with log.open("a", encoding="utf-8") as file:
        file.write("".join(f"{json.dumps(one)}\n" for one in (odd, deep)))
        file.write("{no JSON}\n" + line(5))
    taken = [(row["decision"], row["tool"]) for row in taken_in(index)]
    assert taken == [("d3", "mail?"), ("d5", "send")]
    assert (index.page({})[1]["codes"], index.unread) == (["?"], 2)


def _minute(number):
    return f"2023-11-14T22:{number:02}:00.000+00:00"


def test_several_logs_are_in_the_order_of_time(tmp_path, monkeypatch):
    """However much one has before the other begins, and page by page."""
    monkeypatch.setattr("guard.console.decisions.CHUNK", 1000)
    logs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for first, path in enumerate(logs):
        numbers = range(first, 40, 2)
        path.write_text("".join(line(n, at=_minute(n)) for n in numbers), "utf-8")
    with logs[0].open("a", encoding="utf-8") as file:
        file.write("no line of ours\n")
    index = DecisionIndex(logs[0], logs[1:])
    while index.take_in():
        pass
    found, before = [], 0
    while rows := index.page({}, before=before, limit=7):
        found += [row["decision"] for row in rows]
        before = min(row["id"] for row in rows)
    assert (index.unread, index.take_in()) == (1, 0)
    index.close()
    assert found == [f"d{number}" for number in reversed(range(40))]


def test_consoles_with_other_logs_share_one_index_and_one_order(tmp_path, opened):
    """Each follows the logs of all, also from when another console made the index anew."""
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    minute = "2023-11-14T22:{:02}:00.000+00:00".format

    def written(*numbers):
        for number in numbers:
            with (first, second)[number % 2].open("a", encoding="utf-8") as file:
                file.write(line(number, at=minute(number)))

    written(0, 1, 2)
    one = opened(first)
    alone = [row["decision"] for row in taken_in(one)]
    both = DecisionIndex(first, [second])
    taken = [row["decision"] for row in taken_in(both)]
    written(5, 4, 3, 6)
    later = [row["decision"] for row in taken_in(one)]
    shown = [[row["decision"] for row in index.page({})] for index in (one, both)]
    rest = taken_in(both)
    both.close()

    assert (alone, taken) == (["d0", "d2"], ["d0", "d1", "d2"])
    assert sorted(later) == ["d3", "d4", "d5", "d6"]
    assert (later.index("d4") < later.index("d6"), rest) == (True, [])
    assert shown == [["d6", "d5", "d4", "d3", "d2", "d1", "d0"]] * 2


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


def test_filters_pages_and_sums(log, opened):
    """Filters narrow, pages follow each other, rates count what was decided."""
    index = opened(log)
    index.take_in()
    assert [row["decision"] for row in index.page({"enforced": "ask", "tool": "send"})] == ["d1"]
    assert index.page({"session": "s1", "tool": "nothing"}) == []
    assert [row["decision"] for row in index.page({}, before=3, limit=1)] == ["d1"]
    assert index.series(HOUR, HOUR + 3600)[0][1] == {"allow": 1, "ask": 1, "block": 1}


def test_an_index_of_another_version_is_made_anew(log, opened):
    """A file that is no index is replaced, never trusted."""
    path = log.with_name("audit.jsonl.index")
    path.write_bytes(b"no database" * 100)
    index = opened(log)
    assert index.take_in() == 3


def test_what_the_policy_no_longer_keeps_is_forgotten(log, opened):
    """Decisions, events and sums of before a time, and nothing else."""
    index = opened(log)
    with log.open("a", encoding="utf-8") as file:
        file.write(line(3, at="2023-11-20T22:00:00.000+00:00"))
        file.write('{"event": "guard.approval", "at": "2023-11-14T22:00:00.000+00:00"}\n')
    index.take_in()
    assert index.forget(HOUR + 86400) == 4
    assert index.forget(HOUR + 86400) == 0
    assert [row["decision"] for row in index.page({})] == ["d3"]
    assert index.events() == []
    assert index.series(HOUR, HOUR + 3600)[0][1] == {}


def test_no_question_of_a_page_looks_at_every_row(log, opened, monkeypatch):
    """However long the log is: each filter, alone and with others, and one decision by its id."""
    index = opened(log)
    index.take_in()
    asked = []
    ask = index._asked

    def noted(query, values=()):
        asked.append((query, values))
        return ask(query, values)

    monkeypatch.setattr(index, "_asked", noted)
    values = {"principal": "alice", "session": "s1", "tool": "send", "server": "127.0.0.1:1"}
    for name, value in values.items():
        assert len(index.page({name: value}, before=99)) == 3
        assert len(index.page({name: value, "enforced": "ask"})) == 1
    assert len(index.page({**values, "enforced": "block"}, after=1)) == 1
    assert index.decision("d1")["enforced"] == "ask"
    index.page({})
    for query, given in asked:
        steps = [one["detail"] for one in ask(f"EXPLAIN QUERY PLAN {query}", given)]
        # The newest page of all reads the table backwards, as far as it is long.
        assert "SCAN decisions" not in steps or "WHERE" not in query, (query, steps)
