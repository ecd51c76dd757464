"""Marks of unlabelled results outlive processes, and are never fewer than they should be."""

import pytest

from guard.store.continuity import DiskMarks

ALICE, BOB = ("default", "alice"), ("default", "bob")


def test_a_mark_is_known_to_whoever_opens_the_file_next(tmp_path):
    """A worker that is killed takes none along."""
    DiskMarks(tmp_path / "marks").add(ALICE, 2)

    after = DiskMarks(tmp_path / "marks")

    assert after.pending[0] == 1
    assert after.take(ALICE) == 2
    assert after.take(BOB) == 0


def test_a_mark_of_one_worker_is_pending_at_the_others_at_once(tmp_path):
    """They look at one byte, before each call."""
    one, other = DiskMarks(tmp_path / "marks"), DiskMarks(tmp_path / "marks")
    before = other.pending[0]
    one.add(ALICE, 1)

    assert (before, other.pending[0]) == (0, 1)
    assert other.take(ALICE) == 1


def test_what_the_store_has_is_forgotten_everywhere(tmp_path):
    """And then nobody looks into the file any more."""
    one, other = DiskMarks(tmp_path / "marks"), DiskMarks(tmp_path / "marks")
    one.add(ALICE, 1)
    one.add(BOB, 3)
    other.written(ALICE, other.take(ALICE))

    assert (one.take(ALICE), one.total(), one.pending[0]) == (0, 3, 1)
    one.written(BOB, one.take(BOB))
    assert (other.pending[0], other.total()) == (0, 0)


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


def test_only_its_user_reads_who_has_marks(tmp_path):
    """Principals have names."""
    DiskMarks(tmp_path / "marks").add(ALICE, 1)

    assert {(tmp_path / name).stat().st_mode & 0o077 for name in ("marks", "marks.any")} == {0}
