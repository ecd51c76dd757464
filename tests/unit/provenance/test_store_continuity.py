"""What it means to find another label store than the one that is remembered."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from guard.provenance.seal import Seal
from guard.provenance.store_continuity import (
    LastSeen,
    Loss,
    StoreIdentity,
    judge_identity,
    opened_identity,
    sealed_identity,
)

SEAL = Seal(bytes(range(32)))
ONE, TWO, FRESH = bytes([1]) * 16, bytes([2]) * 16, bytes([9]) * 16
DAY = 86_400
LIFETIME = 90 * DAY
NOW = 1_700_000_000

births = st.builds(
    StoreIdentity,
    id=st.sampled_from([ONE, TWO]),
    began=st.integers(0, 2 * NOW),
    incomplete_until=st.integers(0, 3 * NOW),
    serial=st.integers(1, 20),
)
found = births | st.sampled_from([Loss.EMPTY, Loss.ALTERED])
memories = st.none() | st.builds(LastSeen, st.sampled_from([b"", ONE, TWO]), st.integers(0, 20))


def after(found, noted):
    """Return what is written now, and the loss."""
    return judge_identity(found, noted, StoreIdentity(FRESH, NOW), LIFETIME)


@given(found, memories)
def test_only_the_remembered_store_or_a_first_one_is_taken_at_its_word(state, noted):
    """Everything else is incomplete for a whole lifetime, whatever the record claims."""
    written, loss = after(state, noted)
    sound = isinstance(state, StoreIdentity)
    trusted = (
        (state is Loss.EMPTY or sound)
        if noted is None
        else (sound and state.id == noted.id and state.serial >= noted.serial)
    )
    assert (loss is Loss.NONE) == trusted
    if trusted and sound:
        assert written == replace(state, serial=state.serial + 1)
    elif not trusted:
        assert written.incomplete_until >= NOW + LIFETIME
        same = noted is not None and (not sound or state.id == noted.id)
        assert not same or written.serial > noted.serial


@given(births, memories, memories)
def test_guards_with_different_memories_agree_after_one_look_each(state, first, second):
    """They never take turns replacing each other's record."""
    one, _ = after(state, first)
    two, _ = after(one, second)
    again, loss = after(two, LastSeen(one.id, one.serial))
    assert (again.id, again.incomplete_until, loss) == (two.id, two.incomplete_until, Loss.NONE)


@given(births, st.integers(0, 200), st.integers(1, 255))
def test_a_record_is_read_back_and_no_changed_byte_is(birth, place, change):
    """The MAC covers every byte, and the namespace."""
    raw = sealed_identity(SEAL, "guard", birth)
    assert opened_identity(SEAL, "guard", raw) == birth
    assert opened_identity(SEAL, "other", raw) is None
    altered = bytearray(raw)
    altered[place % len(raw)] ^= change
    assert opened_identity(SEAL, "guard", bytes(altered)) is None
