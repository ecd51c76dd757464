"""The checker passes a sound history, and finds each of nineteen bugs that were put into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lab.chaos.history import Event, Saw, violations


def sound(count: int = 20) -> list[Event]:
    """Return a history of reads, sends inside, and sends that were stopped."""
    events: list[Event] = []
    for n in range(count):
        at, who = 10.0 * n, f"agent{n % 4}"
        evil = f"x{n}@evil.test"
        for step, (call, to, stop) in enumerate(
            [(f"r{n}", evil, False), (f"s{n}", "bob@example.com", False), (f"t{n}", evil, True)]
        ):
            start = at + step
            events.append(Event(start, Saw.ASKED, call, who, to))
            events.append(Event(start + 0.1, Saw.STOPPED if stop else Saw.ALLOWED, call, who, to))
            if stop:
                events.append(Event(start + 0.4, Saw.REFUSED, call, who, to))
            else:
                sent = "" if call.startswith("r") else to
                events.append(Event(start + 0.2, Saw.RECEIVED, call, who, sent))
                done = Saw.READ if call.startswith("r") else Saw.DONE
                events.append(Event(start + 0.4, done, call, who, to))
    return events


def changed(call: str, saw: Saw, **fields: object) -> Callable[[list[Event]], list[Event]]:
    """Return a bug that changes one event."""
    return lambda all_: [
        replace(e, **fields) if (e.call, e.saw) == (call, saw) else e  # type: ignore[arg-type]
        for e in all_
    ]


def without(call: str, *saw: Saw) -> Callable[[list[Event]], list[Event]]:
    """Return a bug that loses events."""
    return lambda all_: [e for e in all_ if e.call != call or e.saw not in saw]


def more(*events: Event) -> Callable[[list[Event]], list[Event]]:
    """Return a bug that adds events."""
    return lambda all_: [*all_, *events]


EVIL = "x7@evil.test"
GRANT = Event(80.5, Saw.GRANTED, "g", "agent3", "grant-1")
USED = (GRANT, Event(80.6, Saw.RECEIVED, "g", "agent3", "p@partner.test"))
USED_AGAIN = tuple(replace(event, call="h") for event in USED)
SAVE = (
    Event(500, Saw.ASKED, "w", "agent3"),
    Event(500.1, Saw.ALLOWED, "w", "agent3"),
    Event(500.2, Saw.RECEIVED, "w", "agent3"),
    Event(500.3, Saw.SAVED, "w", "agent3"),
)
LETTER = "p@partner.test"

BUGS: dict[str, tuple[str, Callable[[list[Event]], list[Event]]]] = {
    "a call passes unjudged": ("received_without_earlier_allow", without("s7", Saw.ALLOWED)),
    "recorded after release": (
        "received_without_earlier_allow",
        changed("s7", Saw.ALLOWED, at=71.35),
    ),
    "a block is forwarded": (
        "received_without_earlier_allow",
        more(Event(72.2, Saw.RECEIVED, "t7", "agent3", EVIL)),
    ),
    "a label was lost": (
        "tainted_became_clean",
        more(
            Event(300, Saw.ASKED, "u", "agent3", EVIL),
            Event(300.1, Saw.ALLOWED, "u", "agent3", EVIL),
            Event(300.2, Saw.RECEIVED, "u", "agent3", EVIL),
        ),
    ),
    "an audit line of an answer was lost": ("audit_line_lost", without("r7", Saw.ALLOWED)),
    "an audit line of a refusal was lost": ("audit_line_lost", without("t7", Saw.STOPPED)),
    "refused, and forwarded all the same": (
        "refused_and_received",
        more(Event(72.2, Saw.RECEIVED, "t7", "agent3", "")),
    ),
    "forwarded again after a restart": (
        "received_twice",
        more(Event(71.9, Saw.RECEIVED, "s7", "agent3", "bob@example.com")),
    ),
    "an answer of another call": ("answered_and_never_received", without("s7", Saw.RECEIVED)),
    "a grant is used twice": ("grant_used_twice", more(*USED, *USED_AGAIN)),
    "two workers decide differently": (
        "two_verdicts",
        more(Event(71.15, Saw.STOPPED, "s7", "agent3", "bob@example.com")),
    ),
    "a stopped call is answered": (
        "stopped_and_answered",
        more(Event(72.5, Saw.DONE, "t7", "agent3", EVIL)),
    ),
    "a grant is lost in a failover": (
        "grant_lost",
        more(
            Event(400, Saw.APPROVED, "d", "agent3", "p@partner.test"),
            Event(401, Saw.ASKED, "g", "agent3", "p@partner.test"),
            Event(401.1, Saw.WAITS, "g", "agent3"),
        ),
    ),
    "forwarded before its line was written, by a clock that is slow": (
        "received_without_earlier_allow",
        lambda all_: changed("s7", Saw.RECEIVED, mark=700)(
            changed("s7", Saw.ALLOWED, mark=900)(all_)
        ),
    ),
    "forwarded although its line could not be written": (
        "refused_and_received",
        more(Event(71.9, Saw.UNRECORDED, "s7", "agent3", "bob@example.com")),
    ),
    "a call that waits for a person goes out": (
        "two_verdicts",
        more(Event(71.15, Saw.WAITS, "s7", "agent3")),
    ),
    "a memory write is acknowledged and its commit is gone": (
        "commit_lost",
        more(*SAVE),
    ),
    "a memory write that was stopped is answered": (
        "stopped_and_answered",
        more(*SAVE, Event(500.15, Saw.STOPPED, "w", "agent3")),
    ),
    "a call of somebody else": ("crossed_principals", changed("s7", Saw.RECEIVED, principal="x")),
}


COMMITTED = Event(510, Saw.COMMITTED, "w", "agent3")
SENT = [Event(300, Saw.ASKED, "u", "agent3", EVIL), Event(300.1, Saw.ALLOWED, "u", "agent3", EVIL)]
USED_ONCE = [
    Event(400, Saw.APPROVED, "d", "agent3", LETTER),
    Event(401, Saw.ASKED, "g", "agent3", LETTER),
    Event(401.1, Saw.GRANTED, "g", "agent3", LETTER),
    Event(401.2, Saw.RECEIVED, "g", "agent3", LETTER),
    Event(401.3, Saw.DONE, "g", "agent3", LETTER),
    Event(402, Saw.ASKED, "h", "agent3", LETTER),
    Event(402.1, Saw.WAITS, "h", "agent3"),
    Event(402.2, Saw.REFUSED, "h", "agent3", LETTER),
]


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(sound(), id="sound"),
        pytest.param([*reversed(sound())], id="in another order"),
        pytest.param([*sound(), *USED_ONCE], id="a grant is asked about again after its use"),
        pytest.param([*sound(), *SAVE, COMMITTED], id="a commit is in the store"),
        pytest.param([*sound(), *SAVE[:3], COMMITTED], id="its answer never came"),
        pytest.param(
            [
                *without("r7", Saw.READ)(sound()),
                *SENT,
                replace(SENT[1], saw=Saw.RECEIVED, at=300.2),
            ],
            id="a read that was not acknowledged taints nothing",
        ),
    ],
)
def test_a_sound_history_has_no_violation(history: list[Event]) -> None:
    """No false alarm, in whatever order the events come."""
    assert violations(history) == []


def test_a_grant_whose_call_arrived_nowhere_is_used_again() -> None:
    """The guard gives it back: nothing of what the person allowed has happened."""
    found = violations([*sound(), GRANT, *USED_AGAIN])

    assert "grant_used_twice" not in {violation.rule for violation in found}


@pytest.mark.parametrize("bug", BUGS)
def test_each_seeded_bug_is_found(bug: str) -> None:
    """The rule that is broken is named, and what was put in is what was found."""
    rule, seed = BUGS[bug]

    assert rule in {violation.rule for violation in violations(seed(sound()))}


@pytest.mark.parametrize(
    ("bug", "acknowledged"),
    [
        ("a label was lost", 70.4),
        ("a grant is lost in a failover", 400.0),
        ("a memory write is acknowledged and its commit is gone", 500.3),
    ],
)
def test_a_loss_says_when_it_was_acknowledged(bug: str, acknowledged: float) -> None:
    """So it can be told whether the durability setting states that it may be lost."""
    _, broken = BUGS[bug]
    [lost] = violations(broken(sound()))

    assert lost.acknowledged == acknowledged
    assert lost.is_within([(0, 1), (acknowledged - 1, acknowledged + 1)])
    assert not lost.is_within([(acknowledged + 0.1, 500)])


def test_what_is_no_loss_is_never_stated() -> None:
    """A call that passes unjudged is a violation whatever a setting states."""
    _, broken = BUGS["a call passes unjudged"]
    found = violations(broken(sound()))

    assert found
    assert not any(wrong.is_within([(0, 1e9)]) for wrong in found)
