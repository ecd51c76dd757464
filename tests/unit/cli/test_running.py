"""What an operator writes is kept as safely as what the guard writes."""

import os

import pytest

from guard.adapters.processes.run_note import RunNote
from guard.cli.running import act_on
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


def test_what_is_set_for_the_command_counts_without_a_note(monkeypatch):
    """On another machine than the guard's there is none."""
    monkeypatch.setenv("GUARD_DURABILITY", "replicated")

    assert act_on(URL, durability_of) is Durability.REPLICATED
