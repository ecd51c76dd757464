"""The audit log: whole lines, no argument text, set aside and removed in time, fail closed."""

import json
import stat
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guard.core.calls import ClassifiedCall, Target
from guard.core.errors import AuditError
from guard.core.mappings import ToolMapping
from guard.core.model import (
    Destination,
    DestinationStatus,
    Identity,
    PrincipalRung,
    Role,
    SessionRung,
    ToolCall,
)
from guard.core.policy import Action, Mode, Reason, Verdict
from guard.core.ports import DecisionRecord
from guard.telemetry.audit_log import (
    DETAIL_CHARS,
    ID_CHARS,
    ITEMS,
    AuditLogFile,
    AuditRetention,
)
from guard.telemetry.audit_tree import Signer, verify

MARKER = "wibble-marker"


def record(
    *,
    arguments=None,
    targets=(),
    tool="email_send_email",
    session="s-1",
    score=0.5,
    seconds=0.000321,
    reasons=None,
    mode=Mode.ENFORCE,
    call_id="d-1",
):
    """Return a record of a blocked send."""
    identity = Identity(
        "agent", session, "default", PrincipalRung.CREDENTIAL, SessionRung.GUARD_HEADER
    )
    call = ToolCall(call_id, identity, tool, arguments or {}, "mcp", 1_700_000_000.25, "mail")
    classified = ClassifiedCall(
        call, Role.SEND, ToolMapping("*", bool, Role.SEND), targets=tuple(targets)
    )
    if reasons is None:
        reasons = (Reason("destination_external", "no-outside", Action.BLOCK, "not on a list"),)
    verdict = Verdict(
        Action.BLOCK, mode, tuple(reasons), "abc123", score=score, decided_by=("no-outside",)
    )
    return DecisionRecord(classified, verdict, seconds, {"prefix13": "ff00"})


def lines(path):
    """Return the parsed lines of an audit file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_decision_becomes_one_line_with_the_whole_schema(tmp_path):
    """The line is pinned whole: its field names are the audit schema."""
    log = AuditLogFile(tmp_path / "audit.jsonl", key=b"k")
    target = Target(
        Destination("mail", "a@evil.test", "evil.test"), DestinationStatus.EXTERNAL, "$['to']"
    )

    log.decision(record(targets=[target]))

    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600
    assert lines(tmp_path / "audit.jsonl") == [
        {
            "event": "guard.decision",
            "decision_id": "d-1",
            "at": "2023-11-14T22:13:20.250+00:00",
            "principal": "agent",
            "principal_rung": "credential",
            "tenant": "default",
            "session": "s-1",
            "session_rung": "guard_header",
            "server": "mail",
            "protocol": "mcp",
            "tool": "email_send_email",
            "role": "send",
            "mapped": True,
            "action": "block",
            "enforced": "block",
            "mode": "enforce",
            "would_have_blocked": False,
            "reasons": [
                {
                    "code": "destination_external",
                    "rule": "no-outside",
                    "action": "block",
                    "detail": "not on a list",
                }
            ],
            "decided_by": ["no-outside"],
            "errors": [],
            "score": 0.5,
            "targets": [
                {
                    "kind": "mail",
                    "standing": "external",
                    "path": "$['to']",
                    "fingerprint": log.fingerprint("a@evil.test"),
                }
            ],
            "policy": "abc123",
            "models": {"prefix13": "ff00"},
            "milliseconds": 0.321,
            "log": ANY,
            "n": 0,
        }
    ]


marked = st.text(max_size=20).map(lambda text: f"{MARKER}{text}")
arguments = st.recursive(
    marked,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(marked, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=arguments, key=marked, destination=marked)
def test_the_file_never_holds_argument_text(tmp_path, value, key, destination):
    """Values, nested keys and destinations carry a marker that must not reach the file."""
    path = tmp_path / "audit.jsonl"
    targets = [
        Target(
            Destination("mail", destination, destination),
            DestinationStatus.EXTERNAL,
            f"$['to']['{key}']",
        ),
        Target(Destination("mail", destination), DestinationStatus.EXTERNAL, f"$['{key} ']"),
        Target(Destination("malformed", destination), DestinationStatus.MALFORMED, "$['to'][0]"),
    ]
    call = record(arguments={"to": value}, targets=targets)
    with_evidence = Reason("x", "r", Action.BLOCK, data={"text": value}, remedy="ask")
    log = AuditLogFile(path)

    log.decision(call)
    log.decision(record(arguments={"to": value}, reasons=[with_evidence]))
    log.close()

    assert lines(path)
    assert MARKER not in path.read_text("utf-8")


def test_what_a_client_chooses_is_bounded_and_cannot_break_the_line(tmp_path):
    """Long ids, line breaks, control characters and lone surrogates stay one bounded line."""
    hostile = "\n\x1b[2J\ud800" + "x" * 5000
    reason = Reason("c", "r", Action.BLOCK, hostile)
    target = Target(Destination("mail", "a@b.test\ud800"), DestinationStatus.EXTERNAL)
    log = AuditLogFile(tmp_path / "audit.jsonl")

    log.decision(
        record(tool=hostile, session=hostile, reasons=[reason] * 500, targets=[target] * 500)
    )

    (line,) = lines(tmp_path / "audit.jsonl")
    assert len(line["tool"]) == len(line["session"]) == ID_CHARS
    assert len(line["reasons"]) == len(line["targets"]) == ITEMS
    assert len(line["reasons"][0]["detail"]) == DETAIL_CHARS
    assert line["omitted"] == {"reasons": 500 - ITEMS, "targets": 500 - ITEMS}
    assert "\x1b" not in (tmp_path / "audit.jsonl").read_text("utf-8")


def test_a_full_disk_is_an_audit_error():
    """`/dev/full` refuses every write, as a full disk does."""
    log = AuditLogFile(Path("/dev/full"))

    with pytest.raises(AuditError, match="cannot write to the audit log"):
        log.decision(record())
    with pytest.raises(AuditError, match="cannot write to the audit log"):
        log.event("guard.reload", {})


def cut_off(log, monkeypatch):
    """Have a log write a piece of a line, as on a full disk."""
    import guard.telemetry.audit_log as module

    whole = module.os.write
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", lambda fd, data: whole(fd, data[:10]))
        with pytest.raises(AuditError, match="took 10 of"):
            log.decision(record(call_id="cut"))


def whole_lines(path):
    """Return the decision ids of the lines that are whole: one object each, to its end."""
    written = path.read_text("utf-8").splitlines()
    whole = [one for one in written if one.count('{"event"') == 1 and one.endswith("}")]
    return [json.loads(one)["decision_id"] for one in whole]


def test_a_line_behind_the_piece_of_another_process_is_whole(tmp_path, monkeypatch):
    """Of two workers with one log, one is cut off and the other does not know; so is its own."""
    path = tmp_path / "audit.jsonl"
    first, second = AuditLogFile(path), AuditLogFile(path)
    second.decision(record(call_id="before"))
    cut_off(first, monkeypatch)

    second.decision(record(call_id="behind"))
    second.decision(record(call_id="next"))
    first.decision(record(call_id="again"))
    cut_off(first, monkeypatch)
    first.decision(record(call_id="own"))
    first.close()
    with pytest.raises(AuditError):
        first.decision(record())

    assert whole_lines(path) == ["before", "behind", "next", "again", "own"]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"score": float("nan")}, id="score that is not a number"),
        pytest.param({"score": object()}, id="score that is not JSON"),
        pytest.param({"seconds": None}, id="no time"),
        pytest.param({"tool": None}, id="no tool"),
    ],
)
def test_a_record_that_cannot_be_described_is_an_audit_error(tmp_path, broken):
    """Whatever keeps the line from being written blocks the call; nothing half is written."""
    log = AuditLogFile(tmp_path / "audit.jsonl")

    with pytest.raises(AuditError):
        log.decision(record(**broken))

    assert lines(tmp_path / "audit.jsonl") == []


def test_after_rotation_lines_go_to_the_new_file(tmp_path):
    """`reopen` follows the path; a path that cannot be opened leaves the old file in use."""
    path = tmp_path / "audit.jsonl"
    log = AuditLogFile(path)
    log.decision(record(call_id="old"))
    path.rename(tmp_path / "audit.jsonl.1")
    log.reopen()
    log.decision(record(call_id="new"))
    path.unlink()
    path.mkdir()
    with pytest.raises(AuditError):
        log.reopen()
    log.decision(record(call_id="unlinked, still open"))

    assert [line["decision_id"] for line in lines(tmp_path / "audit.jsonl.1")] == ["old"]


DAY = 86400.0
START = 1_700_000_000.0
SIGNER = Signer(b"k" * 32)


@pytest.fixture
def log(tmp_path):
    """A log that two processes write, and a clock that only the test moves."""
    path = tmp_path / "audit.jsonl"
    found = SimpleNamespace(path=path, at=START, keep=3 * DAY, opened=[])

    def process():
        audit = AuditLogFile(path, signer=SIGNER, now=lambda: found.at)
        retention = AuditRetention(audit, path, lambda: int(found.keep), lambda: found.at)
        found.opened += [audit, retention]
        return audit, retention

    found.process = process
    yield found
    for audit in found.opened:
        audit.close()


def _turn(retention):
    retention.follow()
    for fields in retention.remove_old():
        retention.removed(fields)


def _files(log):
    return sorted(
        (
            x
            for x in log.path.parent.glob("audit.jsonl*")
            if "check" not in x.name and ".lock" not in x.name
        ),
        key=lambda x: (x.name == "audit.jsonl", x.name),
    )


def test_a_log_is_set_aside_daily_and_removed_when_old(log):
    """Lines are kept for as long as the policy says, and not for more than a day longer."""
    audit, retention = log.process()
    for day in range(9):
        for hour in range(0, 24, 6):
            log.at = START + day * DAY + hour * 3600
            audit.event("line", {"day": day})
            _turn(retention)
    lines = [json.loads(one) for file in _files(log) for one in file.read_text().splitlines()]
    days = [one["day"] for one in lines if one["event"] == "line"]
    assert days == sorted(days)
    assert {5, 6, 7, 8} <= set(days)
    assert not {0, 1, 2, 3} & set(days)
    audit.checkpoint()
    report = verify(_files(log), SIGNER.verifier)
    assert report.is_sound, report


def test_trees_that_went_with_a_file_are_declared_and_others_are_missed(log):
    """A process of days ago: its checkpoints stay, its lines do not."""
    before, _ = log.process()
    before.event("line", {})
    before.close()
    log.opened.pop().close()
    log.opened.clear()
    audit, retention = log.process()
    for day in range(6):
        log.at = START + day * DAY
        audit.event("line", {})
        _turn(retention)
    audit.checkpoint()
    report = verify(_files(log), SIGNER.verifier)
    assert report.is_sound, report
    assert before._tree.log not in report.logs
    newest = _files(log)[-1]
    text = newest.read_text("utf-8").replace(before._tree.log, "0" * 16)
    newest.write_text(text, "utf-8")
    assert not verify(_files(log), SIGNER.verifier).is_sound


def test_a_removal_that_cannot_be_recorded_removes_nothing(log):
    """The record comes first."""
    audit, retention = log.process()
    audit.event("line", {})
    log.at += DAY
    _turn(retention)
    log.at += 4 * DAY
    [fields] = retention.remove_old()
    audit.close()
    with pytest.raises(Exception, match="audit log"):
        retention.removed(fields)
    assert len(_files(log)) == 2


def test_without_the_policy_nothing_is_set_aside(log):
    """Switched off, a log is one file however old; files of others are never touched."""
    log.keep = 0
    audit, retention = log.process()
    other = log.path.with_name("audit.jsonl.20200101")
    other.write_text("somebody's", "utf-8")
    for day in range(9):
        log.at = START + day * DAY
        audit.event("line", {})
        _turn(retention)
    log.keep = DAY
    log.at += 99 * DAY
    _turn(retention)
    assert other.exists()
    assert sum(len(file.read_text().splitlines()) for file in _files(log)) >= 9
