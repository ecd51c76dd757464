"""The label key: made once, private, whole."""

import concurrent.futures

import pytest

from guard.core.errors import GuardError
from guard.credentials.label_key import (
    label_key_path,
    load_label_key,
)


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
