"""Writes of unknown fate: read back and settled, or reported; never sent again."""

import json

import pytest

from guard.core.jsonpath import compile_path
from guard.core.mappings import MemoryPolicy, ReadBack, WriteMapping
from guard.core.memory import Fate, MemoryClass
from guard.store.gate_records import GateOperator
from guard.store.memory_stores.fate_probe import resolve
from guard.store.staging import RedisStaging
from tests.staged_writes import leave_in_flight, staged_write

ASK = ReadBack("get", {"key": "$.key", "limit": "3"})


def _policy(read_back):
    write = WriteMapping(
        "",
        lambda tool: tool == "save",
        "facts",
        MemoryClass.L4,
        content=(compile_path("$.value"),),
        read_back=read_back,
    )
    return MemoryPolicy(matrix={}, second_look={}, writes=(write,))


@pytest.fixture
async def operator(redis_client, redis_namespace):
    """An operator, with one write in flight whose answer is lost."""
    content = json.dumps({"key": "k", "value": 'the "red" door'})
    lost = staged_write("lost", target=MemoryClass.L4, content=content, server="127.0.0.1:8080")
    await leave_in_flight(RedisStaging(redis_client, namespace=redis_namespace), lost)
    return GateOperator(redis_client, namespace=redis_namespace)


@pytest.mark.parametrize(
    ("answer", "fate"),
    [
        pytest.param('the "red" door', Fate.ACKNOWLEDGED, id="there"),
        pytest.param('{"value": "the \\"red\\" door"}', Fate.ACKNOWLEDGED, id="there as json"),
        pytest.param("the green door", Fate.ABANDONED, id="something else is there"),
        pytest.param("", Fate.ABANDONED, id="nothing is there"),
    ],
)
async def test_a_lost_write_is_settled_by_what_the_store_has(operator, answer, fate):
    """The recall of the profile is asked with the write's own key."""
    asked = []

    async def ask(server, read_back, arguments):
        asked.append((server, read_back.tool, dict(arguments)))
        return answer

    assert await resolve(operator, _policy(ASK), ask, -1.0) == [("lost", fate)]
    assert asked == [("127.0.0.1:8080", "get", {"key": "k", "limit": "3"})]
    assert (await operator.candidate("lost")).fields["fate"] == fate.value
    assert await operator.in_flight(-1.0) == []


async def test_a_write_that_cannot_be_read_back_is_reported(operator):
    """No recall in the profile: a person is told, and nothing is guessed."""

    async def ask(server, read_back, arguments):
        raise AssertionError(server, read_back, arguments)

    assert await resolve(operator, _policy(None), ask, -1.0) == [("lost", Fate.UNKNOWN)]
    assert [item.fields["fate"] for item in await operator.review(5)] == ["unknown"]


async def test_a_store_that_does_not_answer_leaves_the_fate_unknown(operator):
    """It can be asked again."""

    async def ask(server, read_back, arguments):
        raise OSError

    assert await resolve(operator, _policy(ASK), ask, -1.0) == [("lost", Fate.UNKNOWN)]


async def test_a_write_that_may_still_be_answered_is_left_alone(operator):
    """A young write is in flight, not lost."""

    async def ask(server, read_back, arguments):
        raise AssertionError(server, read_back, arguments)

    assert await resolve(operator, _policy(ASK), ask, 60.0) == []
