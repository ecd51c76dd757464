"""Agents of the overload bench: how many of their calls are open at once."""

from __future__ import annotations

import asyncio

from lab.load import ANSWER
from lab.overload import CLOSED, Tally, _closed


class Sent(asyncio.Transport):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Count a request."""
        assert bytes(data).startswith(b"POST ")
        self.requests += 1


async def test_more_agents_than_calls_take_turns() -> None:
    """Who was answered rests, and who has rested the longest calls."""
    tally = Tally()
    agents = _closed(0, tally, CLOSED + 2)
    sent = [Sent() for _ in agents]
    for agent, transport in zip(agents, sent, strict=True):
        agent.connection_made(transport)
    for agent in agents:
        agent.begin()
    assert [one.requests for one in sent] == [1] * CLOSED + [0, 0]

    for index in (5, 3, 7):
        agents[index].data_received(ANSWER)

    assert tally.served == 3
    assert [one.requests for one in sent[CLOSED:]] == [1, 1]
    assert [index for index, one in enumerate(sent) if one.requests == 2] == [5]


async def test_as_many_agents_as_calls_call_again_at_once() -> None:
    """So the highest rate is found."""
    agents, sent = _closed(0, Tally()), Sent()
    agents[0].connection_made(sent)
    agents[0].begin()
    agents[0].data_received(ANSWER)

    assert sent.requests == 2
