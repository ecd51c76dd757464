"""How much the guard executes for one call (docs/adr/0011)."""

from __future__ import annotations

import pytest

from tests.trace_call import Trace, measure

REFUSED = (35, 183, 288)
"""Files, functions and calls of a refused send at most."""
ALLOWED = (32, 138, 202)
"""Likewise of a released one."""


@pytest.fixture(scope="module")
def traces() -> tuple[Trace, Trace]:
    """What a refused send and a released one executed."""
    return measure()


def test_a_refused_send_executes_no_more_than_it_did(traces: tuple[Trace, Trace]) -> None:
    """Whoever adds to the path of a call says so here."""
    assert all(map(int.__le__, traces[0].counts(), REFUSED)), str(traces[0])


def test_a_released_send_executes_no_more_than_it_did(traces: tuple[Trace, Trace]) -> None:
    """Likewise."""
    assert all(map(int.__le__, traces[1].counts(), ALLOWED)), str(traces[1])
