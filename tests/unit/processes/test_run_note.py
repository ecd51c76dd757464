"""Notes of running guards: how `guard approvals grant` finds the state of the one that runs."""

import json
import os

import pytest

from guard.core.errors import GuardError
from guard.processes.notes import ConsoleNote, RunNote, find_console, find_running


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The directory of the notes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "egress-guard" / "run"


def test_a_running_guard_is_found_until_it_says_goodbye(notes):
    """With the address of its state and its label key; nobody else may read the note."""
    note = RunNote(os.getpid(), "unix:///run/redis.sock", "/run/label.key")
    assert note.write()

    assert find_running() == note
    [path] = notes.iterdir()
    modes = [one.stat().st_mode & 0o777 for one in (notes.parent, notes, path)]
    assert modes == [0o700, 0o700, 0o600]
    note.remove()
    with pytest.raises(GuardError, match="no guard of this user runs"):
        find_running()


def test_the_note_of_a_guard_that_was_killed_is_taken_away(notes):
    """It names a state that is gone."""
    # No process has it: it is beyond the largest id that the kernel gives.
    assert RunNote(2**22 + 1, "unix:///gone").write()
    assert RunNote(os.getpid(), "unix:///here").write()

    assert find_running().redis == "unix:///here"
    assert [path.stem for path in notes.iterdir()] == [str(os.getpid())]


def test_of_several_guards_the_operator_chooses(notes):
    """A grant must not end in the state of another one."""
    assert RunNote(os.getpid(), "unix:///one").write()
    assert RunNote(os.getppid(), "unix:///two").write()

    with pytest.raises(GuardError, match="choose one with --redis") as caught:
        find_running()
    assert "`unix:///one`" in str(caught.value)
    assert "`unix:///two`" in str(caught.value)


def test_notes_in_a_directory_that_others_may_enter_count_for_nothing(notes):
    """Whoever can put a note there could have grants written into a state of their own."""
    notes.mkdir(parents=True)
    notes.chmod(0o777)
    forged = {"pid": os.getpid(), "redis": "redis://elsewhere.test"}
    (notes / "1.json").write_text(json.dumps(forged), encoding="utf-8")

    assert not RunNote(os.getpid(), "unix:///here").write()
    with pytest.raises(GuardError, match="no guard of this user runs"):
        find_running()


def test_of_a_console_and_a_guard_that_it_does_not_watch_the_operator_chooses(notes):
    """An answer must not end in the state of another guard; a console may be of several guards."""
    console = ConsoleNote(os.getpid(), "http://127.0.0.1:1", "secret", redis="unix:///one")
    assert console.write()
    assert RunNote(os.getpid(), "unix:///one").write()
    assert find_console() == console

    assert RunNote(os.getppid(), "unix:///two").write()
    with pytest.raises(GuardError, match="--redis unix:///two") as caught:
        find_console()
    assert "--console http://127.0.0.1:1 " in str(caught.value)
    assert find_console("http://127.0.0.1:1/") == console
    assert find_console("http://127.0.0.1:2") is None
