"""A worker has no more connections than it may; an old idle one makes room for a new one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from guard.adapters.lean.pep import IDLE_AT_LIMIT_SECONDS, LeanPep
from guard.core.errors import MessageError
from guard.core.metrics import Metrics
from guard.enforcement.admission import Limits


class Client:
    """A connection that was heard some seconds ago."""

    sockname = ("127.0.0.1", 8080)

    def __init__(self, heard: float, *, is_idle: bool) -> None:
        self.heard = heard
        self.is_idle = is_idle
        self.aborted = False

    def abort(self) -> None:
        """End."""
        self.aborted = True


@pytest.fixture(name="noted")
def _noted() -> list[MessageError]:
    return []


@pytest.fixture(name="pep")
def _pep(noted: list[MessageError]) -> Any:
    return _made(noted, connections=2)


def _made(noted: list[MessageError], **options: Any) -> LeanPep:
    requests = SimpleNamespace(note=lambda error, _: noted.append(error))
    admission = SimpleNamespace(limits=Limits())
    enforcement = SimpleNamespace(
        streams=[], body_limit=1000, requests=requests, admission=admission
    )
    return LeanPep(enforcement, Metrics(), [], **options)  # type: ignore[arg-type]


def test_beyond_the_limit_a_connection_is_refused_and_recorded(pep: Any, noted: Any) -> None:
    """Those that are open are at work, so none of them has to go."""
    busy = [Client(0.0, is_idle=False), Client(0.0, is_idle=False)]
    assert [pep.came(one) for one in busy] == [True, True]

    assert not pep.came(Client(100.0, is_idle=True))
    assert not any(one.aborted for one in busy)
    assert [(error.code, error.retry_after) for error in noted] == [("overloaded", 1)]
    pep.left(busy[0])
    assert pep.came(Client(100.0, is_idle=True))


def test_a_connection_that_is_idle_for_long_makes_room(pep: Any, noted: Any) -> None:
    """One that was used a moment ago does not."""
    old, fresh = Client(0.0, is_idle=True), Client(100.0, is_idle=True)
    assert pep.came(fresh)
    assert pep.came(old)

    assert pep.came(Client(IDLE_AT_LIMIT_SECONDS + 1, is_idle=True))
    assert (old.aborted, fresh.aborted) == (True, False)
    assert not noted
