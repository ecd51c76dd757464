"""The note of the label store that was seen last: private, whole, never guessed at."""

import concurrent.futures

import pytest

from guard.core.errors import GuardError
from guard.provenance.store_continuity import LastSeen
from guard.store.continuity import ContinuityNote

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
    remembered = ContinuityNote(key, "redis").read()
    assert remembered is not None
    assert remembered.id == b""


def test_a_note_that_cannot_be_read_stops_the_guard(key):
    """A directory in its place is not a first start either."""
    key.with_name("label.key.redis-birth").mkdir()
    with pytest.raises(GuardError, match="cannot be read"):
        ContinuityNote(key, "redis").read()


def test_workers_that_write_at_once_leave_one_whole_note(key):
    """Whoever reads meanwhile reads all of one of them."""
    note = ContinuityNote(key, "redis")
    names = [bytes([number]) * 16 for number in range(64)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: note.write(LastSeen(name, name[0])), names))
    remembered = note.read()
    assert remembered is not None
    assert remembered == LastSeen(names[remembered.serial], remembered.serial)
    assert len(list(key.parent.iterdir())) == 1
