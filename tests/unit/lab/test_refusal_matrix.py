"""What makes a cell of the refusal matrix unreadable: each way in which a client can fail."""

from __future__ import annotations

from typing import Any

import pytest

from lab.refusal_matrix import SECRET, SENT, _problems

BEGINS = "This call was refused by the egress guard and did not reach the tool. "
TEXT = f"{BEGINS}Reason: never (d). What would help: another. Retry: no. Decision id: d1d1d1d1."
LINE = {"decision_id": "d1d1d1d1", "enforced": "block", "reasons": [{"code": "never"}]}
REACHED = [{"tool": "mail", "body": "hello"}]


def problems(kind: str, seen: Any, lines: Any = (LINE,), arrived: Any = ()) -> list[str]:
    """Return what is wrong with a cell."""
    return list(_problems(kind, seen, lines, arrived))


def test_a_refusal_that_names_decision_reason_and_remedy_is_readable() -> None:
    """And nothing else is asked of it."""
    assert problems("refused", [{"seen": TEXT}]) == []


@pytest.mark.parametrize(
    ("seen", "lines", "arrived", "words"),
    [
        pytest.param([{"hung": True}], [LINE], [], "waits", id="it waits"),
        pytest.param([{"seen": TEXT, "raised": "E"}], [LINE], [], "raises E", id="it raises"),
        pytest.param([{"seen": TEXT}], [LINE] * 2, [], None, id="one decision in two lines"),
        pytest.param(
            [{"seen": TEXT}], [LINE, {**LINE, "decision_id": "d2"}], [], "2 refusals", id="repeats"
        ),
        pytest.param([{"seen": TEXT}], [], [], "0 refusals", id="nothing on record"),
        pytest.param([{"seen": TEXT}], [LINE], REACHED, "1 calls reached", id="it went out"),
        pytest.param([{"seen": "an error"}], [LINE], [], "not named", id="the words are lost"),
        pytest.param(
            [{"seen": TEXT.removeprefix(BEGINS)}], [LINE], [], "said wrongly", id="it seems sent"
        ),
    ],
)
def test_each_way_to_fail_is_seen(seen: Any, lines: Any, arrived: Any, words: str | None) -> None:
    """A matrix that nothing can fail would show nothing."""
    found = problems("refused", seen, lines, arrived)

    assert found == [] if words is None else any(words in one for one in found)


def test_an_ask_must_say_to_repeat_the_call() -> None:
    """And never not to."""
    said = f"{TEXT} repeat this exact call after it was given"

    assert problems("asked", [{"seen": said}]) == []
    assert problems("asked", [{"seen": TEXT}]) != []
    assert problems("asked", [{"seen": f"{said}; do not retry"}]) != []


def test_a_redacted_call_goes_out_without_the_secret() -> None:
    """Its result is what the tool said."""
    out = [{"enforced": "redact", "decision_id": "d1d1d1d1"}]

    assert problems("redacted", [{"seen": SENT}], out, REACHED) == []
    assert problems("redacted", [{"seen": SENT}], out, [{"body": SECRET}]) == [
        "the secret went out"
    ]
    assert problems("redacted", [{"seen": TEXT}], [LINE], REACHED) != []


def test_the_other_call_of_a_turn_is_not_stopped() -> None:
    """One is refused, one is carried out."""
    assert problems("batch", [{"seen": SENT}, {"seen": TEXT}], arrived=REACHED) == []
    assert problems("batch", [{"seen": TEXT}, {"seen": TEXT}], arrived=[]) != []
