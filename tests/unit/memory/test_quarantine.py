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
    ("closed", "arguments", "tool", "code"),
    [
        pytest.param("bad", {"groups": "bad"}, "find", "partition_quarantined", id="closed"),
        pytest.param("bad", {"groups": ["x", "bad"]}, "find", "partition_quarantined",
                     id="closed among others"),
        pytest.param("bad", {"groups": ["x"]}, "find", "", id="healthy"),
        pytest.param("bad", {}, "find", "", id="none named"),
        pytest.param("default", {}, "find", "partition_quarantined", id="the whole store"),
        pytest.param(None, {"groups": "x"}, "find", "gate_error", id="a store without an answer"),
        pytest.param(None, {}, "x", "", id="another tool"),
    ],
)  # fmt: skip
async def test_a_closed_partition_is_not_read(closed, arguments, tool, code):
    """Nor one of which it cannot be known; healthy ones and other tools are."""
    verdict = await judge_read(_policy(), _Store(closed), _call(arguments, tool), ALLOWED)

    assert [reason.code for reason in verdict.reasons] == [code] * bool(code)
    assert (verdict.action is Action.BLOCK) is bool(code)
