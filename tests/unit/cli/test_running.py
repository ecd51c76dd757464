"""What an operator writes is kept as safely as what the guard writes."""

import json
import os

import pytest

from guard.cli.running import act_on, on_record
from guard.processes.notes import RunNote
from guard.settings import Durability

URL = "redis://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _notes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("GUARD_DURABILITY", raising=False)


async def durability_of(state):
    """Return what the writes of a command must reach."""
    return state.store.client.durability


def test_a_command_writes_as_the_running_guard_does():
    """A grant that a failover takes back was acknowledged as well."""
    assert act_on(URL, durability_of) is Durability.RELAXED
    assert RunNote(os.getpid(), URL, "", "replicated").write()
    assert act_on(URL, durability_of) is Durability.REPLICATED
    assert act_on("redis://127.0.0.1:2", durability_of) is Durability.RELAXED


def test_an_act_is_on_record_in_the_log_of_the_running_guard(tmp_path, capsys):
    """Of the one with this state, unless a log is named; where it has none, that is said."""
    log, other = tmp_path / "audit.jsonl", tmp_path / "other.jsonl"
    assert RunNote(os.getpid(), URL, audit=str(log)).write()
    with on_record(None, URL) as record:
        record.event("guard.approval", {"answer": "granted"})
    with on_record(other, URL) as record:
        record.event("guard.approval", {"answer": "denied"})
    told = capsys.readouterr().err
    with on_record(None, "redis://127.0.0.1:2") as record:
        record.event("guard.approval", {"answer": "lost"})

    lines = [json.loads(path.read_text("utf-8")) for path in (log, other)]
    assert [one["answer"] for one in lines] == ["granted", "denied"]
    assert (told, "not on record" in capsys.readouterr().err) == ("", True)
