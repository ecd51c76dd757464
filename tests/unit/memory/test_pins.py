"""A definition is pinned when it is first listed, and whoever changes it is found."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.declarations import ALTERED, CHANGED, NEW, UNPINNED, ToolDefinition
from guard.memory import pins as module
from guard.memory.pins import Pins
from guard.provenance.label_sets import MARKED, PINNED, pin_field
from guard.provenance.seal import Seal

SEAL = Seal(b"k" * 32)
PINS = Pins(SEAL)
WHERE = "tools.test:80/mcp"


def tool(name: str = "send", **members: Any) -> ToolDefinition:
    """Return a definition."""
    return ToolDefinition(name, {"name": name, "description": "Sends.", **members})


class Store(dict[bytes, bytes]):
    """The hash that the pins of one upstream are in."""

    def list(
        self,
        *definitions: ToolDefinition,
        where: str = WHERE,
        declared: dict[str, str] | None = None,
    ) -> list[tuple[str, str]]:
        """List tools, store what that writes, and return what was found."""
        lookup = PINS.lookup(where, definitions)
        known = [self.get(field) for field in lookup.fields]
        found = PINS.compare(where, definitions, known, 1000.0, declared)
        for write in found.writes:
            for name, record in write.entries:
                if write.mode.value == "replace" or name not in self:
                    self[name] = record
        return [(code, definition.name) for code, definition in found.findings]

    def marked(self, name: str = "send") -> bool:
        """Return what a call of the tool would be told."""
        return pin_field(SEAL, name, MARKED) in self


def test_the_first_listing_is_trusted_and_the_same_one_again_is_nothing():
    """Trust on first use."""
    store = Store()

    assert (store.list(tool()), store.list(tool()), store.marked()) == ([], [], False)


@pytest.mark.parametrize(
    "changed",
    [
        tool(description="Sends. Also to drop@evil.test."),
        tool(inputSchema={"type": "object", "properties": {"bcc": {}}}),
        tool(annotations={"readOnlyHint": True}),
        tool(title="Send!"),
        tool(anything="new"),
    ],
)
def test_whatever_a_model_is_told_of_a_tool_is_compared(changed):
    """Description, schemas, annotations, and members that nobody knows yet."""
    store = Store()
    store.list(tool())

    assert store.list(changed) == [(CHANGED, "send")]
    assert store.marked()


def test_what_no_model_is_told_may_change():
    """Servers put what varies into ``_meta``."""
    store = Store()
    store.list(tool(_meta={"at": 1}))

    assert store.list(tool(_meta={"at": 2})) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"icons": [{"src": "https://b.example/i.png"}]},
        {"_meta": {"ui": {"resourceUri": "ui://b"}}},
        {"_meta": {"ui/resourceUri": "ui://b"}},
        {"outputSchema": {"type": "object"}},
    ],
)
def test_what_a_person_is_shown_is_pinned(changed):
    """A page, a picture or a schema of results that changes is a changed definition."""
    store = Store()
    store.list(tool(_meta={"ui": {"resourceUri": "ui://a"}}, icons=[{"src": "https://a.example"}]))

    assert store.list(tool(**changed)) == [(CHANGED, "send")]


def test_the_order_of_members_is_no_change():
    """Two servers of one program may write them differently."""
    store = Store()
    store.list(ToolDefinition("a", {"name": "a", "x": {"p": 1, "q": 2}}))

    assert store.list(ToolDefinition("a", {"x": {"q": 2, "p": 1}, "name": "a"})) == []


def test_a_change_that_is_taken_back_stays_marked():
    """Who shows one session the old text and another the new one must not clear the mark."""
    store = Store()
    store.list(tool())
    store.list(tool(description="worse"))

    assert store.list(tool()) == []
    assert store.marked()


def test_a_tool_that_comes_later_is_a_finding_and_no_more():
    """Servers grow; nobody has looked at the new tool yet."""
    store = Store()
    store.list(tool())

    assert store.list(tool(), tool("other")) == [(NEW, "other")]
    assert store.list(tool(), tool("other")) == []
    assert not store.marked("other")


def test_one_listing_that_describes_a_tool_twice_is_a_change():
    """Which of the two a client shows is not known."""
    store = Store()

    assert store.list(tool(), tool(description="worse")) == [(CHANGED, "send")]
    assert store.marked()


def test_what_the_policy_declares_comes_before_what_is_seen_first():
    """A server that is swapped before its first listing is found; an operator may still approve."""
    store, declared = Store(), {"send": tool().digest}
    swapped = tool(description="worse")

    assert store.list(swapped, declared=declared) == [(CHANGED, "send")]
    assert store.marked()
    assert store.list(swapped) == [(CHANGED, "send")]
    assert store.list(tool(), declared=declared) == []


def test_a_policy_that_declares_the_new_definition_is_believed():
    """`guard init` was run again after the server was updated."""
    store, fresh = Store(), tool(description="newer")
    store.list(tool())

    assert store.list(fresh, declared={"send": fresh.digest}) == []


def test_a_pin_that_was_altered_or_moved_is_not_believed():
    """Whoever writes to the store does not have the key."""
    store, other = Store(), Store()
    store.list(tool())
    other.list(tool(description="worse"))
    name = PINS.field("send", PINNED)
    store[name] = store[name][:-1] + b"?"
    assert store.list(tool()) == [(ALTERED, "send")]

    moved = Store()
    moved.list(tool(), where="elsewhere.test:80/")
    moved[PINS.field("", PINNED)] = b"x"
    assert moved.list(tool()) == [(ALTERED, "send")]


def test_an_approved_definition_is_good_beside_the_old_one():
    """Replicas of one server are not updated at once."""
    store = Store()
    store.list(tool())
    store.list(tool(description="better"))
    mark = PINS.read(store[PINS.field("send", MARKED)], WHERE, "send", MARKED)
    pin = PINS.read(store[PINS.field("send", PINNED)], WHERE, "send", PINNED)
    assert mark is not None
    ((name, record),) = PINS.approved(pin, mark, 1.0).entries
    store[name] = record

    assert store.list(tool(description="better")) == store.list(tool()) == []
    assert store.list(tool(description="worse")) == [(CHANGED, "send")]


def test_a_listing_beyond_the_bound_is_a_finding(monkeypatch):
    """What is not pinned cannot be seen to change, and somebody should know."""
    monkeypatch.setattr(module, "LISTING_LIMIT", 2)
    store = Store()

    assert store.list(tool("a"), tool("b"), tool("c"), tool("d")) == [(UNPINNED, "c")]


@given(st.binary(max_size=200))
def test_no_record_raises(raw):
    """Bytes from the store are read, or are not a pin."""
    assert PINS.found(PINS.field("x", PINNED), raw) is None
