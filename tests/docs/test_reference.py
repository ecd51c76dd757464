"""Generated pages are current, and their data names only what exists."""

import re

import pytest

from tests import reference
from tests.reference import COMPLIANCE, PAGES, ROOT, TECHNIQUES, load

NAMED = re.compile(r"(?P<path>[^:\[]+)(?:::(?P<test>\w+)|\[(?P<row>.+)\])?")


def entries():
    """Return every attempt to get past the guard."""
    return [one for section in load(TECHNIQUES).values() for one in section]


def missing(tests):
    """Return the named tests that do not exist."""
    found = []
    for name in sorted(set(tests)):
        piece = NAMED.fullmatch(name)
        path = ROOT / piece["path"]
        source = path.read_text(encoding="utf-8") if path.is_file() else None
        wanted = (
            f'id="{piece["row"]}"'
            if piece["row"]
            else f"def {piece['test']}("
            if piece["test"]
            else ""
        )
        if source is None or (path.suffix == ".py" and wanted not in source):
            found.append(name)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name):
    """`make reference` would not change it."""
    assert (ROOT / name).read_text(encoding="utf-8") == PAGES[name]()


def test_every_code_and_field_has_a_meaning():
    """A code without a meaning, or a meaning without a code, is a mistake in codes.yaml."""
    texts = reference.codes()
    known = {metric.name for metric in reference.declared_metrics()} | {
        "guard_console_errors_total",
        "guard_console_approval_seconds",
    }

    assert set(texts["reasons"]) == set(reference.reason_codes())
    assert set(texts["refusals"]) == set(reference.REFUSAL_CODES)
    assert set(texts["audit_fields"]) == reference.audit_fields()
    assert set(texts["metrics"]) - known == set()
    assert set(texts["settings"]) - set(reference.Settings.model_fields) == set()


def test_every_event_of_the_audit_log_has_a_meaning():
    """The names that the code gives to lines are those of codes.yaml."""
    pattern = re.compile(r'(?:\.event\(\s*|EVENT_\w+: Final = )"(guard\.[a-z_]+)"')
    written = {
        name
        for path in (ROOT / "guard").rglob("*.py")
        for name in pattern.findall(path.read_text(encoding="utf-8"))
    }

    assert {"guard.decision", "guard.unreadable"} <= written
    assert written - set(reference.codes()["events"]) == set()


def test_every_attempt_is_tested_or_open():
    """Only an attempt that works today may have no test."""
    for one in entries():
        assert one["status"] in {"denied", "seen", "open"}, one["technique"]
        assert bool(one.get("tests")) is (one["status"] != "open"), one["technique"]
        assert one["status"] != "open" or one.get("open"), one["technique"]


def test_every_test_of_an_attempt_exists():
    """A row that claims a test has one."""
    tests = [name for one in entries() for name in one.get("tests", ())]

    assert len(tests) > 300
    assert missing(tests) == []


def test_open_risks_fit_on_one_page():
    """The page has at most 1,500 words, so that people read it."""
    assert len(reference.open_risks_page().split()) <= 1500


def test_every_row_of_a_framework_names_a_test_that_exists():
    """Only what is out of scope has none."""
    rows = [row for one in load(COMPLIANCE)["frameworks"] for row in one["rows"]]

    assert missing([name for row in rows for name in row.get("tests", ())]) == []
    for row in rows:
        assert row["status"] in {"covered", "partly", "out of scope"}, row["id"]
        assert bool(row.get("tests")) is (row["status"] != "out of scope"), row["id"]
