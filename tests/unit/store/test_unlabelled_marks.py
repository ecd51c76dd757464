"""Marks of unlabelled results outlive processes, and are never fewer than they should be."""

import pytest

from guard.store.continuity import DiskMarks

ALICE, BOB = ("default", "alice"), ("default", "bob")


def test_a_mark_is_known_to_every_worker_until_the_store_has_it(tmp_path):
    """At once, and to whoever opens the file next; only their user reads who has marks."""
    one, other = DiskMarks(tmp_path / "marks"), DiskMarks(tmp_path / "marks")
    assert other.pending[0] == 0
    one.add(ALICE, 1)
    one.add(BOB, 3)
    assert other.pending[0] == DiskMarks(tmp_path / "marks").pending[0] == 1
    other.written(ALICE, other.take(ALICE))

    assert (one.take(ALICE), one.total(), one.pending[0]) == (0, 3, 1)
    one.written(BOB, DiskMarks(tmp_path / "marks").take(BOB))
    assert (other.pending[0], other.total()) == (0, 0)
    assert {(tmp_path / name).stat().st_mode & 0o077 for name in ("marks", "marks.any")} == {0}


def test_two_attempts_at_once_do_not_carry_the_same_marks(tmp_path):
    """What one of them could not write is there for the next."""
    marks = DiskMarks(tmp_path / "marks")
    marks.add(ALICE, 2)

    first, second = marks.take(ALICE), marks.take(ALICE)
    marks.put_back(ALICE, first)

    assert (first, second, marks.take(ALICE)) == (2, 0, 2)


def test_a_file_that_cannot_be_written_says_so(tmp_path):
    """Whoever asked releases nothing then."""
    marks = DiskMarks(tmp_path / "marks")
    (tmp_path / "marks").mkdir()

    with pytest.raises(OSError, match="cannot be kept"):
        marks.add(ALICE, 1)
    with pytest.raises(OSError, match="cannot be read"):
        marks.take(ALICE)
