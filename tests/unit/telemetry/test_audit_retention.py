"""The log is set aside daily and removed in time; what is left verifies, no line is lost."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from guard.telemetry.audit_log import AuditLogFile, AuditRetention
from guard.telemetry.audit_tree import Signer, verify

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
