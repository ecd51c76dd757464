"""Closed partitions are not read; healthy ones are."""

import pytest

from guard.core.calls import ClassifiedCall
from guard.core.errors import StateError
from guard.core.jsonpath import compile_path
from guard.core.mappings import MemoryPolicy, ReadMapping
from guard.core.model import Identity, Role, ToolCall
from guard.core.policy import Action, Mode, Verdict
from guard.memory.write_path import judge_read

ALLOWED = Verdict(Action.ALLOW, Mode.ENFORCE, (), "digest")


class _Store:
    """A staging store with one closed partition, or none that answers."""

    def __init__(self, closed=None):
        self._closed = closed

    async def is_closed(self, identity, store, partitions):
        if self._closed is None:
            raise StateError
        return store == "notes" and self._closed in partitions


def _policy(partition="$.groups"):
    reads = (ReadMapping(lambda tool: tool == "find", "notes", compile_path(partition)),)
    return MemoryPolicy(matrix={}, second_look={}, writes=(), reads=reads)


def _call(arguments, tool="find"):
    call = ToolCall("id", Identity("p", "s"), tool, arguments, "mcp", 0.0)
    return ClassifiedCall(call, Role.RECALL)


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        pytest.param({"groups": "poisoned"}, Action.BLOCK, id="closed"),
        pytest.param({"groups": ["healthy", "poisoned"]}, Action.BLOCK, id="closed among others"),
        pytest.param({"groups": ["healthy"]}, Action.ALLOW, id="healthy"),
        pytest.param({}, Action.ALLOW, id="none named"),
    ],
)
async def test_a_closed_partition_is_not_read(arguments, action):
    """The poisoned one is excluded, the healthy ones stay intact."""
    verdict = await judge_read(_policy(), _Store("poisoned"), _call(arguments), ALLOWED)

    assert verdict.action is action
    assert [reason.code for reason in verdict.reasons] == (
        ["partition_quarantined"] if action is Action.BLOCK else []
    )


async def test_whatever_names_no_partition_is_in_the_default_one():
    """So a whole store can be closed."""
    verdict = await judge_read(_policy(), _Store("default"), _call({}), ALLOWED)

    assert verdict.action is Action.BLOCK


async def test_a_store_that_does_not_answer_refuses_the_read():
    """What cannot be known to be open is closed."""
    verdict = await judge_read(_policy(), _Store(), _call({"groups": "healthy"}), ALLOWED)

    assert [reason.code for reason in verdict.reasons] == ["gate_error"]


async def test_other_tools_are_not_asked_about():
    """A tool that the policy does not name as a read costs nothing."""
    assert await judge_read(_policy(), _Store(), _call({}, tool="x"), ALLOWED) is ALLOWED
