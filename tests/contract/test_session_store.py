"""What every ``SessionStore`` must do, run on the real one."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.core.errors import StateError
from guard.core.labels import LabelLookup, LabelQuery, LabelSet, LabelWrite, LabelWriteMode
from guard.core.model import ROLES, Identity, Role
from guard.core.ports import Attempt, Completion
from guard.core.trajectory import Snapshot, Trajectory, Window
from guard.store.store import TURN, RedisSessionStore

ALICE = Identity("alice", "one")
SERIAL = itertools.count()


def attempt_of(role, identity=ALICE, unlabelled=0):
    """Return an attempt of this role."""
    return Attempt("id", identity, role, 0.0, unlabelled=unlabelled)


def end_of(role, identity=ALICE, *, executed):
    """Return the end of a call of this role."""
    return Completion("id", identity, role, 0.0, executed=executed)


def counts(*roles):
    """Return how often each role occurs, in storage order."""
    return tuple(roles.count(role) for role in ROLES)


calls = st.lists(
    st.tuples(
        st.sampled_from(ROLES), st.sampled_from(["executed", "refused", "open"]), st.booleans()
    ),
    max_size=14,
)


def model_of(
    history,
):
    """Return what a window must be after a history, from the pure core alone."""
    refused = [role for role, fate, _ in history if fate == "refused"]
    in_a_row = 0
    for _, fate, _ in history:
        in_a_row = {"executed": 0, "refused": in_a_row + 1, "open": in_a_row}[fate]
    return Window(
        Trajectory.of(role for role, fate, _ in history if fate == "executed"),
        counts(*(role for role, _, _ in history)),
        counts(*refused),
        in_a_row,
    )


@settings(max_examples=30)
@given(history=calls)
def test_the_store_counts_exactly_what_the_core_counts(redis_server, history):
    """For any history over two sessions, both windows equal the fold of the pure core."""

    async def replay():
        namespace = f"fold-{next(SERIAL)}"
        store = RedisSessionStore.at(redis_server.url, namespace=namespace, timeout=60.0)
        sessions = {True: ALICE, False: Identity("alice", "two")}
        for role, fate, first in history:
            await store.attempt(attempt_of(role, sessions[first]))
            if fate != "open":
                await store.complete(end_of(role, sessions[first], executed=fate == "executed"))
        seen = [await store.attempt(attempt_of(Role.OTHER, sessions[s])) for s in (True, False)]
        await store.aclose()
        return seen[0], seen[1]

    first, second = asyncio.run(replay())

    assert first.session == model_of([call for call in history if call[2]])
    assert second.session == model_of([call for call in history if not call[2]])
    assert first.principal == model_of(history)


async def test_two_parallel_calls_of_one_session_see_each_other(store):
    """Of two attempts in flight, exactly one sees none and the other sees the first."""
    seen = await asyncio.gather(*(store.attempt(attempt_of(Role.RECALL)) for _ in range(2)))

    assert sorted(s.session.possible(Role.RECALL) for s in seen) == [0, 1]
    assert sorted(s.principal.possible(Role.RECALL) for s in seen) == [0, 1]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Identity("bob", "one"), id="principal"),
        pytest.param(Identity("alice", "one", tenant="acme"), id="tenant"),
        pytest.param(Identity("alice", "one", tenant="default}:x"), id="tenant-with-brace"),
        pytest.param(Identity("aliceone", ""), id="concatenation"),
        pytest.param(Identity("\ud800", "one"), id="lone-surrogate"),
    ],
)
async def test_nobody_sees_the_history_of_another(store, other):
    """Principals and tenants share nothing, whatever text they choose for themselves."""
    await store.attempt(attempt_of(Role.RECALL))

    assert await store.attempt(attempt_of(Role.SEND, other)) == Snapshot()


async def test_a_new_session_of_a_principal_keeps_the_principal_window(
    store,
):
    """Choosing a new session id does not shed what the principal did."""
    await store.attempt(attempt_of(Role.RECALL))
    await store.complete(end_of(Role.RECALL, executed=True))

    seen = await store.attempt(attempt_of(Role.SEND, Identity("alice", "two")))

    assert seen.session == Window()
    assert seen.principal.trajectory == Trajectory.of([Role.RECALL])


async def test_unlabelled_results_are_in_the_snapshot_of_the_attempt_that_reports_them(
    store,
):
    """The call that carries the marks is already judged on them, and so is the next."""
    first = await store.attempt(attempt_of(Role.SEND, unlabelled=3))
    second = await store.attempt(attempt_of(Role.SEND))

    assert [first.session.unlabelled, first.principal.unlabelled] == [3, 3]
    assert [second.session.unlabelled, second.principal.unlabelled] == [3, 3]
    assert first.session.attempted == counts()


@pytest.mark.parametrize("executed", [True, False])
async def test_a_completion_without_a_trace_of_its_attempt_counts(store, *, executed):
    """After the attempt expired, what is possible is what was executed, never less than none."""
    await store.complete(end_of(Role.RECALL, executed=executed))

    seen = await store.attempt(attempt_of(Role.SEND))

    assert seen.session.possible(Role.RECALL) == int(executed)
    assert seen.session.trajectory == Trajectory.of([Role.RECALL] if executed else [])


AREA = LabelSet("x", ("owner",), "", ttl=60_000, limit=3)


def record(label, text=""):
    """Return bytes with a label where a record has it."""
    return bytes(9) + bytes([label]) + text.encode()


async def stored(store, *fields):
    """Return what is in the area, and whether the principal is marked full."""
    attempt = Attempt("id", ALICE, Role.OTHER, 0.0, query=LabelQuery((LabelLookup(AREA, fields),)))
    snapshot = await store.attempt(attempt)
    return snapshot.labels.values, snapshot.full


@pytest.mark.parametrize(
    ("mode", "label", "kept"),
    [
        pytest.param(LabelWriteMode.KEEP, 3, 1, id="keep"),
        pytest.param(LabelWriteMode.RAISE, 3, 3, id="raise-higher"),
        pytest.param(LabelWriteMode.RAISE, 0, 1, id="raise-lower"),
        pytest.param(LabelWriteMode.REPLACE, 0, 0, id="replace"),
    ],
)
async def test_a_second_record_of_a_value_counts_as_its_mode_says(store, mode, label, kept):
    """The first stays, the higher one wins, or the last."""
    await store.note(ALICE, [LabelWrite(AREA, mode, ((b"a", record(1)),))])
    await store.note(ALICE, [LabelWrite(AREA, mode, ((b"a", record(label)),))])

    assert await stored(store, b"a", b"b") == ((record(kept), None), False)


@pytest.mark.parametrize(
    "mode", [LabelWriteMode.KEEP, LabelWriteMode.RAISE, LabelWriteMode.REPLACE]
)
async def test_a_record_beyond_the_limit_is_dropped_and_marks_the_principal_full(store, mode):
    """What is there already takes no room; what is missing is unknown, and suspicious."""
    three = tuple((bytes([65 + n]), record(1)) for n in range(3))
    await store.note(ALICE, [LabelWrite(AREA, mode, three)])
    await store.note(ALICE, [LabelWrite(AREA, mode, three)])
    labels, full = await stored(store, b"A", b"B", b"C")
    assert (labels, full) == ((record(1),) * 3, False)

    await store.note(ALICE, [LabelWrite(AREA, mode, ((b"D", record(1)),))])

    assert await stored(store, b"C", b"D") == ((record(1), None), True)


async def test_a_call_is_executed_only_once_all_labels_of_its_result_are_stored(store, monkeypatch):
    """Where a turn fails, the result is not released, and its call has not been executed."""
    area = LabelSet("x", ("owner",), "", ttl=60_000, limit=10_000)
    entries = tuple((number.to_bytes(4, "big"), record(1)) for number in range(2 * TURN))
    run, turns = store.client.run, itertools.count()

    async def fails_once(*arguments):
        if next(turns) == 1:
            raise StateError("gone")
        return await run(*arguments)

    monkeypatch.setattr(store.client, "run", fails_once)
    writes = (LabelWrite(area, LabelWriteMode.KEEP, entries),)
    with pytest.raises(StateError, match="gone"):
        await store.complete(Completion("id", ALICE, Role.SEND, 0.0, executed=True, writes=writes))

    snapshot = await store.attempt(attempt_of(Role.SEND))
    assert snapshot.session.trajectory == Trajectory.of([])
