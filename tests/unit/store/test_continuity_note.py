"""The note of the label store that was seen last, and what people are told of lost labels."""

import pytest

from guard.core.errors import GuardError
from guard.provenance.store_continuity import LastSeen, Loss, StoreIdentity
from guard.store.continuity import ContinuityCheck, ContinuityNote, ContinuityReport
from guard.telemetry.metrics import PrometheusMetrics
from tests.guards import Audit

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


def test_a_loss_is_told_once_with_what_to_do(capsys):
    """And its end, whichever way it comes."""
    audit, metrics = Audit(), PrometheusMetrics()
    report = ContinuityReport(audit, metrics, kept=True)
    for look in (seen(), seen(Loss.EMPTY, UNTIL), seen(until=UNTIL)):
        report(look)
    assert metrics.registry.get_sample_value("guard_labels_incomplete") == 1
    words = capsys.readouterr().err
    assert words.count("\n") == 1
    assert all(word in words for word in ("2024-02-12", "memory import", "memory accept-loss"))

    for look in (seen(), seen(Loss.ROLLED_BACK, UNTIL), seen(until=UNTIL, at=UNTIL)):
        report(look)
    assert [(one["event"], one.get("loss"), one.get("why")) for one in audit.lines] == [
        ("guard.labels_incomplete", "empty", None),
        ("guard.labels_complete", None, "accepted"),
        ("guard.labels_incomplete", "rolled_back", None),
        ("guard.labels_complete", None, "expired"),
    ]
    assert metrics.registry.get_sample_value("guard_labels_incomplete") == 0


def test_without_an_audit_log_the_gauge_still_shows():
    """A full disk is counted, and takes back nothing."""
    audit, metrics = Audit(), PrometheusMetrics()
    audit.fails.add("event")
    ContinuityReport(audit, metrics, kept=True)(seen(Loss.EMPTY, UNTIL))

    sample = metrics.registry.get_sample_value
    assert sample("guard_labels_incomplete") == 1
    assert sample("guard_errors_total", {"stage": "audit"}) == 1
