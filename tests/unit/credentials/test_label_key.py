"""The label key: made once, private, whole."""

import concurrent.futures
from pathlib import Path

import pytest

from guard.core.errors import GuardError, InputError
from guard.credentials.label_key import (
    default_path,
    fallback_key,
    label_key_path,
    load_label_key,
)
from guard.processes.notes import living_notes
from guard.processes.run_note import RunNote
from guard.settings import Settings


def test_a_missing_key_is_made_private_and_stays(tmp_path):
    """Mode 0600, 32 random bytes, the same on the next start."""
    path = tmp_path / "state" / "label.key"
    key = load_label_key(path)
    assert (len(key), path.stat().st_mode & 0o777) == (32, 0o600)
    assert load_label_key(path) == key
    assert [p.name for p in path.parent.iterdir()] == ["label.key"]


def test_two_processes_that_start_at_once_use_one_key(tmp_path):
    """Whoever loses the race reads the winner's file."""
    path = tmp_path / "label.key"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: load_label_key(path), range(32)))
    assert len(keys) == 1


@pytest.mark.parametrize(("mode", "size", "words"), [(0o644, 32, "chmod"), (0o600, 8, "32 bytes")])
def test_a_key_that_is_shared_or_short_is_refused(tmp_path, mode, size, words):
    """Neither is a secret."""
    path = tmp_path / "label.key"
    path.write_bytes(bytes(size))
    path.chmod(mode)
    with pytest.raises(GuardError, match=words):
        load_label_key(path)


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    """A named file is used or nothing is."""
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(GuardError, match="cannot be used"):
        load_label_key(tmp_path / "file" / "label.key")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory with nothing in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path


def test_the_key_lies_in_the_state_directory(home, monkeypatch):
    """Where the authority and the notes of runs are, by the same convention."""
    load_label_key()
    assert default_path() == home / ".local" / "state" / "egress-guard" / "label.key"
    assert default_path().exists()
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "elsewhere"))
    assert default_path() == home / "elsewhere" / "egress-guard" / "label.key"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["default", "XDG_STATE_HOME"])
def test_a_key_of_an_earlier_version_is_used_where_it_lies(home, monkeypatch, elsewhere):
    """A new one would turn every label of the deployment into that of nobody."""
    if elsewhere:
        monkeypatch.setenv("XDG_STATE_HOME", str(home / "elsewhere"))
    earlier = home / ".local" / "state" / "agent-egress-guard" / "label.key"
    key = load_label_key(earlier)

    assert load_label_key() == key
    assert label_key_path() == earlier
    assert not list(home.rglob("egress-guard"))


def test_a_key_in_the_state_directory_beats_an_earlier_one(home):
    """Whoever put it there meant it."""
    load_label_key(home / ".local" / "state" / "agent-egress-guard" / "label.key")
    meant = load_label_key(home / ".local" / "state" / "egress-guard" / "label.key")

    assert load_label_key() == meant


@pytest.mark.parametrize("error", [RuntimeError, PermissionError], ids=["none", "closed"])
def test_without_a_home_the_state_directory_is_enough(tmp_path, monkeypatch, error):
    """A container's user may have none, and a service's may be closed to it."""

    def no_home():
        raise error

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "home", no_home)

    assert default_path() == tmp_path / "egress-guard" / "label.key"


def test_a_run_without_any_home_has_a_key_of_its_own(tmp_path, monkeypatch):
    """A process whose user has no entry in the passwd file; what must outlive it says why not."""

    def no_home():
        raise RuntimeError

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)

    assert fallback_key(tmp_path) == tmp_path / "label.key"
    assert label_key_path(fallback=tmp_path / "label.key") == tmp_path / "label.key"
    assert Settings(policy=[Path("builtin:default")]).ca is None
    assert RunNote(1, "unix://").write() is False
    assert living_notes("run", RunNote) == []
    with pytest.raises(InputError, match="set XDG_STATE_HOME"):
        load_label_key()


def test_the_fallback_is_used_only_where_no_home_takes_a_key(tmp_path, monkeypatch):
    """For labels that live no longer than the run."""
    (tmp_path / "home").write_text("no directory", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    load_label_key(None, tmp_path / "run.key")
    assert (tmp_path / "run.key").exists()
    with pytest.raises(GuardError):
        load_label_key(None)
