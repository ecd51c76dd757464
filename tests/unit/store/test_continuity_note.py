"""The note of the label store that was seen last, and what people are told of lost labels."""

import json

import pytest

from guard.core.errors import AuditError, GuardError
from guard.provenance.store_continuity import LastSeen, Loss, StoreIdentity
from guard.store.continuity import ContinuityCheck, ContinuityNote, ContinuityReport
from guard.telemetry.audit_log import AuditLogFile, NoAuditLog
from guard.telemetry.metrics import PrometheusMetrics

SEEN = LastSeen(bytes(range(16)), 7)


@pytest.fixture
def key(tmp_path):
    """Return where the label key lies."""
    return tmp_path / "label.key"


def test_a_note_is_private_and_read_back(key):
    """Mode 0600, beside the key, and no draft is left."""
    note = ContinuityNote(key, "redis")
    assert note.read() is None
    assert note.write(SEEN)
    assert ContinuityNote(key, "redis").read() == SEEN
    [file] = key.parent.iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("label.key.redis-birth", 0o600)


@pytest.mark.parametrize(
    "text", ["", "zz 1", "00 1", f"{'00' * 16} -1", f"{'00' * 16} 1 2", "\xff"]
)
def test_a_note_that_is_no_note_fits_no_store(key, text):
    """Half a file must not look like a first start."""
    key.with_name("label.key.redis-birth").write_text(text, encoding="utf-8")
    assert ContinuityNote(key, "redis").read().id == b""


def test_a_note_that_cannot_be_read_stops_the_guard(key):
    """A directory in its place is not a first start either."""
    key.with_name("label.key.redis-birth").mkdir()
    with pytest.raises(GuardError, match="cannot be read"):
        ContinuityNote(key, "redis").read()


NOW = 1_700_000_000
UNTIL = NOW + 90 * 86_400


def seen(loss=Loss.NONE, until=0, at=NOW, *, noted=True):
    """Return one look."""
    return ContinuityCheck(StoreIdentity(bytes(16), NOW, until), loss, at, noted)


@pytest.fixture
def metrics():
    """Return the metrics."""
    return PrometheusMetrics()


@pytest.fixture
def audit(tmp_path):
    """Return an audit log, and how to read its lines."""
    log = AuditLogFile(tmp_path / "audit.jsonl")
    yield log, lambda: [json.loads(x) for x in (tmp_path / "audit.jsonl").read_text().splitlines()]
    log.close()


def shown(metrics):
    """Return the gauge."""
    return metrics.registry.get_sample_value("guard_labels_incomplete")


def test_a_loss_is_told_once_with_what_to_do(metrics, audit, capsys):
    """And its end, whichever way it comes."""
    report = ContinuityReport(audit[0], metrics, kept=True)
    report(seen())
    report(seen(Loss.EMPTY, UNTIL))
    report(seen(until=UNTIL))
    assert shown(metrics) == 1
    words = capsys.readouterr().err
    assert words.count("\n") == 1
    assert all(word in words for word in ("2024-02-12", "memory import", "memory accept-loss"))

    report(seen())
    report(seen(Loss.ROLLED_BACK, UNTIL))
    report(seen(until=UNTIL, at=UNTIL))
    lines = [
        {k: v for k, v in line.items() if k in {"event", "loss", "store", "why"}}
        for line in audit[1]()
    ]
    assert lines == [
        {"event": "guard.labels_incomplete", "loss": "empty", "store": "redis"},
        {"event": "guard.labels_complete", "why": "accepted"},
        {"event": "guard.labels_incomplete", "loss": "rolled_back", "store": "redis"},
        {"event": "guard.labels_complete", "why": "expired"},
    ]
    assert shown(metrics) == 0


def test_without_an_audit_log_the_gauge_still_shows(metrics, monkeypatch):
    """A full disk is counted, and takes back nothing."""

    def fail(*_):
        raise AuditError("full")

    log = NoAuditLog()
    monkeypatch.setattr(log, "event", fail)
    ContinuityReport(log, metrics, kept=True)(seen(Loss.EMPTY, UNTIL))

    assert shown(metrics) == 1
    assert metrics.registry.get_sample_value("guard_errors_total", {"stage": "audit"}) == 1
