"""Recordings: everything in, everything out, and whatever was done to a file in between is told."""

import errno
import json
from dataclasses import replace
from unittest.mock import Mock

import pytest

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import AuditError, InputError
from guard.core.model import Identity, Role, ToolCall
from guard.core.policy import Action, Mode, Verdict
from guard.replay.traces import Run, Selection, as_runs
from guard.telemetry import recordings
from guard.telemetry.recordings import Limits, RecordingReader, RecordingWriter
from tests.guards import Counts

KEY = b"k" * 32
WHO = Identity("alice", "s1")
ALLOWED = Verdict(Action.ALLOW, Mode.ENFORCE, (), "digest")


def call(number, **changed):
    """Return a call."""
    given = {"to": "bob@partner.example"}
    made = ToolCall(f"id{number}", WHO, "send", given, protocol="mcp", at=float(number))
    return replace(made, **changed)


def result(of, content="ok"):
    """Return what came back of a call."""
    return ToolResult(untraced(ClassifiedCall(of, Role.SEND)), content, of.at + 0.5)


@pytest.fixture
def writer(tmp_path):
    """A writer of its own directory."""
    opened = RecordingWriter(tmp_path / "rec", KEY, Counts(), now=lambda: 1000.0)
    yield opened
    opened.close()


def read(directory, key=KEY):
    """Return records and reports."""
    reader = RecordingReader(directory, key)
    return list(reader.records()), reader.reports


def test_what_was_recorded_is_read_again_and_nowhere_in_clear(writer, tmp_path):
    """Prompts, calls and results come back whole, in order; the files show nothing."""
    writer.prompt(WHO, "write to bob@partner.example", 0.0)
    for number in range(50):
        writer.call(call(number), ALLOWED, required=number % 7 == 0)
        writer.result(result(call(number), {"n": number}))
    writer.close()

    records, reports = read(tmp_path / "rec")

    assert [report.problem for report in reports] == [""]
    assert [r["type"] for r in records] == ["prompt", *["call", "result"] * 50]
    assert records[-1]["content"] == {"n": 49}
    raw = b"".join(path.read_bytes() for path in (tmp_path / "rec").iterdir())
    assert b"partner" not in raw
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "rec").iterdir())


def test_another_key_opens_nothing(writer, tmp_path):
    """A wrong key is an error that says so, not an empty recording."""
    writer.call(call(1), ALLOWED, required=True)

    with pytest.raises(InputError, match="another key"):
        read(tmp_path / "rec", b"x" * 32)


@pytest.mark.parametrize("how", ["cut", "flip", "swap", "drop", "append", "header", "end"])
def test_whatever_was_done_to_a_segment_is_told(writer, tmp_path, how):
    """What stands before the damage is read; the rest is not, and the report says so."""
    for number in range(6):
        writer.call(call(number), ALLOWED, required=True)
    writer.close()
    [path] = (tmp_path / "rec").iterdir()
    path.write_bytes(damaged(path.read_bytes(), how))

    records, [report] = read(tmp_path / "rec")

    assert report.problem
    assert [r["id"] for r in records] == [f"id{n}" for n in range(len(records))]


def damaged(data, how):
    """Return a segment with one thing wrong."""
    head = len(recordings.MAGIC)
    start = head + 4 + int.from_bytes(data[head : head + 4], "big")
    chunks, place = [], start
    while place < len(data):
        length = 5 + int.from_bytes(data[place + 1 : place + 5], "big")
        chunks.append(data[place : place + length])
        place += length
    match how:
        case "cut":
            return data[: start + len(chunks[0]) + 9]
        case "flip":
            return data[:-200] + bytes([data[-200] ^ 1]) + data[-199:]
        case "swap":
            chunks[1], chunks[2] = chunks[2], chunks[1]
        case "drop":
            del chunks[2]
        case "append":
            chunks.append(chunks[0])
        case "header":
            return data.replace(b'"started": 1000.0', b'"started": 2000.0')
        case "end":
            del chunks[-1]
    return data[:start] + b"".join(chunks)


def test_a_full_disk_loses_nothing_that_fits_in_memory(writer, tmp_path, monkeypatch):
    """What could not be written is written once there is room; meanwhile required calls fail."""
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(recordings.os, "write", full)
        writer.call(call(1), ALLOWED, required=False)
        with pytest.raises(AuditError, match="No space left"):
            writer.call(call(2), ALLOWED, required=True)
    writer.call(call(3), ALLOWED, required=True)
    writer.close()

    records, _ = read(tmp_path / "rec")

    assert [r["id"] for r in records] == ["id1", "id2", "id3"]


def test_the_oldest_segments_go_first(tmp_path, monkeypatch):
    """Size and age bound what is kept."""
    monkeypatch.setattr(recordings, "SEGMENT_BYTES", 300)
    ticks = iter(float(n) for n in range(1, 10_000))
    limits = Limits(total_bytes=1500, seconds=1e12)
    opened = RecordingWriter(tmp_path, KEY, Counts(), limits, now=lambda: next(ticks))
    for number in range(20):
        opened.call(call(number), ALLOWED, required=True)
    opened.close()

    records, _ = read(tmp_path)

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3000
    assert 0 < len(records) < 20
    assert records[-1]["id"] == "id19"


def test_recordings_are_runs_of_the_trace_format(writer, tmp_path):
    """Whoever reads recorded runs reads these."""
    bob = replace(WHO, principal="bob")
    writer.prompt(WHO, "write to bob@partner.example", 0.0)
    writer.call(call(1), ALLOWED, required=False)
    writer.result(result(call(1), 7))
    writer.call(call(2, identity=bob), ALLOWED, required=False)
    writer.close()
    records, _ = read(tmp_path / "rec")

    found = as_runs(records)
    [run] = [Run.model_validate_json(json.dumps(run)) for run in found.runs]
    [alone] = as_runs(records, Selection(principal="bob")).runs

    assert [(c.agent, c.session, c.result) for c in run.calls] == [
        ("alice", "alice/s1", "7"),
        ("bob", "bob/s1", None),
    ]
    assert run.prompts[0].text == "write to bob@partner.example"
    assert (found.calls, found.unanswered) == (2, 1)
    assert [c["id"] for c in alone["calls"]] == ["id2"]


def test_a_principal_can_be_erased(writer, tmp_path):
    """Calls, results and prompts of one principal go; the others stay, and the rest verifies."""
    bob = replace(WHO, principal="bob")
    for number in range(4):
        asked = call(number, identity=bob if number % 2 else WHO)
        writer.prompt(asked.identity, "hello", float(number))
        writer.call(asked, ALLOWED, required=False)
        writer.result(result(asked))
    writer.close()

    gone = recordings.erase(tmp_path / "rec", KEY, lambda r: r.get("principal") == "bob")
    records, [report] = read(tmp_path / "rec")

    assert gone == 6
    assert report.problem == ""
    assert {r["id"] for r in records if "id" in r} == {"id0", "id2"}
    assert "bob" not in {r.get("principal") for r in records}
