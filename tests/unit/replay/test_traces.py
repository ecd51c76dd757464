"""Tests of trace format v1 reading."""

import gzip
import json

import pytest

from guard.replay.traces import TraceError, parse_run, read_traces

CALL = {"i": 0, "session": "0", "tool": "send", "args": {}}


def line(**changes):
    """Return one valid line with some fields changed."""
    return json.dumps({"run_id": "r", "calls": [CALL], **changes}).encode()


def write(path, *lines):
    """Write a trace file and return its path."""
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def test_files_are_read_in_order_gzipped_or_not(tmp_path):
    """Lines in the order written; a run without a principal is its own, unknown fields no harm."""
    known = line(run_id="b", principal="p", extra=1, calls=[{**CALL, "more": [1]}])
    first = write(tmp_path / "1.jsonl", line(run_id="c"), b"", line(run_id="a"))
    packed = tmp_path / "2.jsonl.gz"
    packed.write_bytes(gzip.compress(known))
    assert [(run.run_id, run.owner) for run in read_traces([first, packed])] == [
        *(("c", "c"), ("a", "a")),
        ("b", "p"),
    ]


def test_a_timestamp_is_iso_8601_or_a_number():
    """Both spellings of one moment give the same seconds; no offset means UTC."""
    spellings = ["2026-07-01 00:00:00+00:00", "2026-07-01T02:00:00+02:00", "2026-07-01T00:00:00"]
    seconds = {parse_run(line(calls=[{**CALL, "ts": ts}])).calls[0].ts for ts in spellings}
    assert seconds == {1782864000.0}
    assert parse_run(line(calls=[{**CALL, "ts": 1782864000}])).calls[0].ts == 1782864000.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "run: is not json: "),
        (b"[]", "run: "),
        (b"\xff{}", "run: is not utf-8 at byte 0"),
        (b'{"run_id": "a", "run_id": "b", "calls": []}', "run: has a duplicate object name"),
        (line(calls=[CALL]).replace(b'"args": {}', b'"args": {"to": 1, "to": 2}'), "duplicate"),
        (line(labels={}).replace(b'"labels": {}', b'"labels": {"a": 1, "a": 1}'), "duplicate"),
        (b'{"calls": []}', "run_id: field required"),
        (b'{"run_id": "a"}', "calls: field required"),
        (line(run_id=7), "run_id: input should be a valid string"),
        (line(calls={}), "calls: "),
        (line(calls=[{**CALL, "i": "0"}]), "calls.0.i: input should be a valid integer"),
        (line(calls=[{**CALL, "i": True}]), "calls.0.i: "),
        (line(calls=[CALL, {**CALL, "args": []}]), "calls.1.args: "),
        (line(calls=[{**CALL, "result": 1}]), "calls.0.result"),
        (line(calls=[{**CALL, "ts": "yesterday"}]), "calls.0.ts: `yesterday` is not a time"),
        (line(calls=[{**CALL, "ts": True}]), "calls.0.ts: input should be a valid number"),
        (line(calls=[{**CALL, "ts": 1}]).replace(b'"ts": 1', b'"ts": 1e999'), "run: "),
        (line(calls=[{**CALL, "ts": 10**400}]), "calls.0.ts: "),
        (line(calls=[{**CALL, "ts": 1}]).replace(b'"ts": 1', b'"ts": NaN'), "run: "),
        (line(prompts=[{"session": "0"}]), "prompts.0.text: field required"),
        (b"[" * 200_000, "run: "),
        (b'{"run_id": ' + b"9" * 5000 + b"}", "run: "),
    ],
)
def test_a_bad_line_is_named_by_file_line_and_field(tmp_path, text, message):
    """What cannot be read one way only is an error that says where."""
    path = write(tmp_path / "bad.jsonl", line(), text)
    with pytest.raises(TraceError) as caught:
        list(read_traces([path]))
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)
    assert caught.value.line == 2


@pytest.mark.parametrize("content", [None, b"not gzip", gzip.compress(line() * 100)[:-20]])
def test_a_missing_or_damaged_archive_is_a_trace_error(tmp_path, content):
    """A truncated or mislabelled archive never passes as a shorter recording."""
    path = tmp_path / "cut.jsonl.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceError, match=r"cut\.jsonl\.gz: (no such file|cannot be read)"):
        list(read_traces([path]))


def test_an_audit_log_is_named_as_such_with_what_to_do():
    """It looks like a trace: one JSON object a line."""
    with pytest.raises(TraceError, match=r"audit log.*from-recording.*run_id.*policy explain"):
        parse_run(b'{"event": "guard.decision", "decision_id": "d1", "action": "block"}')
