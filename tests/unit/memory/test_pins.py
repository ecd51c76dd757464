"""A definition is pinned when it is first listed, and whoever changes it is found."""

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


def tool(name="send", **members):
    """Return a definition."""
    return ToolDefinition(name, {"name": name, "description": "Sends.", **members})


class Store(dict[bytes, bytes]):
    """The hash that the pins of one upstream are in."""

    def list(
        self,
        *definitions,
        where=WHERE,
        declared=None,
    ):
        """List tools, store what that writes, and return what was found."""
        lookup = PINS.lookup(where, definitions)
        known = [self.get(field) for field in lookup.fields]
        found = PINS.compare(where, definitions, known, 1000.0, declared)
        for write in found.writes:
            for name, record in write.entries:
                if write.mode.value == "replace" or name not in self:
                    self[name] = record
        return [(code, definition.name) for code, definition in found.findings]

    def marked(self, name="send"):
        """Return what a call of the tool would be told."""
        return pin_field(SEAL, name, MARKED) in self


WORSE = tool(description="worse")


@pytest.fixture
def store():
    """Return the hash of one upstream."""
    return Store()


@pytest.mark.parametrize(
    ("listings", "found", "marked"),
    [
        pytest.param([[tool()], [tool()]], [[], []], False, id="trust on first use"),
        pytest.param(
            [[tool(_meta={"at": 1})], [tool(_meta={"at": 2})]], [[], []], False, id="what varies"
        ),
        pytest.param(
            [
                [ToolDefinition("send", {"name": "send", "x": {"p": 1, "q": 2}})],
                [ToolDefinition("send", {"x": {"q": 2, "p": 1}, "name": "send"})],
            ],
            [[], []],
            False,
            id="order of members",
        ),
        pytest.param(
            [[tool()], [WORSE], [tool()]],
            [[], [(CHANGED, "send")], []],
            True,
            id="a change that is taken back stays marked",
        ),
        pytest.param(
            [[tool()], [tool(), tool("other")], [tool(), tool("other")]],
            [[], [(NEW, "other")], []],
            False,
            id="a tool that comes later",
        ),
        pytest.param(
            [[tool(), WORSE]], [[(CHANGED, "send")]], True, id="one listing describes it twice"
        ),
    ],
)
def test_a_listing_is_compared_with_what_was_listed_before(listings, found, marked, store):
    """Each listing in turn; the mark stays until an operator answers it."""
    assert [store.list(*one) for one in listings] == found
    assert store.marked() is marked


SHOWN = tool(_meta={"ui": {"resourceUri": "ui://a"}}, icons=[{"src": "https://a.example"}])


@pytest.mark.parametrize(
    ("before", "changed"),
    [
        (tool(), tool(description="Sends. Also to drop@evil.test.")),
        (tool(), tool(inputSchema={"type": "object", "properties": {"bcc": {}}})),
        (tool(), tool(annotations={"readOnlyHint": True})),
        (tool(), tool(title="Send!")),
        (tool(), tool(anything="new")),
        # A page, a picture or a schema of results that a person is shown.
        (SHOWN, tool(icons=[{"src": "https://b.example/i.png"}])),
        (SHOWN, tool(_meta={"ui": {"resourceUri": "ui://b"}})),
        (SHOWN, tool(_meta={"ui/resourceUri": "ui://b"})),
        (SHOWN, tool(outputSchema={"type": "object"})),
    ],
)
def test_whatever_a_model_is_told_of_a_tool_is_compared(before, changed, store):
    """Description, schemas, annotations, what is shown, and members that nobody knows yet."""
    store.list(before)

    assert store.list(changed) == [(CHANGED, "send")]
    assert store.marked()


def test_what_the_policy_declares_comes_before_what_is_seen_first():
    """A server that is swapped before its first listing is found; an operator may still approve."""
    store, declared = Store(), {"send": tool().digest}

    assert store.list(WORSE, declared=declared) == [(CHANGED, "send")]
    assert store.marked()
    assert store.list(WORSE) == [(CHANGED, "send")]
    assert store.list(tool(), declared=declared) == []


def test_a_policy_that_declares_the_new_definition_is_believed():
    """`guard init` was run again after the server was updated."""
    store, fresh = Store(), tool(description="newer")
    store.list(tool())

    assert store.list(fresh, declared={"send": fresh.digest}) == []


def test_a_pin_that_was_altered_or_moved_is_not_believed():
    """Whoever writes to the store does not have the key."""
    store = Store()
    store.list(tool())
    name = PINS.field("send", PINNED)
    store[name] = store[name][:-1] + b"?"
    assert store.list(tool()) == [(ALTERED, "send")]

    moved = Store()
    moved.list(tool(), where="elsewhere.test:80/")
    moved[PINS.field("", PINNED)] = b"x"
    assert moved.list(tool()) == [(ALTERED, "send")]


def test_an_approved_definition_is_good_beside_the_old_one(store):
    """Replicas of one server are not updated at once."""
    store.list(tool())
    store.list(tool(description="better"))
    mark = PINS.read(store[PINS.field("send", MARKED)], WHERE, "send", MARKED)
    pin = PINS.read(store[PINS.field("send", PINNED)], WHERE, "send", PINNED)
    ((name, record),) = PINS.approved(pin, mark, 1.0).entries
    store[name] = record

    assert store.list(tool(description="better")) == store.list(tool()) == []
    assert store.list(tool(description="worse")) == [(CHANGED, "send")]


def test_a_listing_beyond_the_bound_is_a_finding(monkeypatch):
    """What is not pinned cannot be seen to change, and somebody should know."""
    monkeypatch.setattr(module, "LISTING_LIMIT", 2)
    assert Store().list(tool("a"), tool("b"), tool("c"), tool("d")) == [(UNPINNED, "c")]


@given(st.binary(max_size=200))
def test_no_record_raises(raw):
    """Bytes from the store are read, or are not a pin."""
    assert PINS.found(PINS.field("x", PINNED), raw) is None
