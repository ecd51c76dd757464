"""Text flows, a call waits, and nothing of a refused call reaches the client."""

import json
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.core.errors import MessageError
from guard.protocols.base import discover_protocols
from guard.protocols.framing.sse import EventCutter
from guard.protocols.llm.model_answers import CALLS_LIMIT
from guard.protocols.messages import Message
from tests.model_wires import FORMATS, Call, event, read_stream, stream, whole

PROTOCOLS = {protocol.name: protocol for protocol in discover_protocols()}
SECRET_LETTERS = "ΩΨΞΦΛΣ"
NOTICE = "refused [7]"

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters=SECRET_LETTERS), max_size=40)
PLAIN = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.text("xyz 😀é", max_size=9))
SECRETS = st.dictionaries(
    st.text("ΩΨΞ", min_size=1, max_size=3), st.text("ΦΛΣ", min_size=1, max_size=9), min_size=1
)


@st.composite
def calls(draw: st.DrawFn) -> list[Call]:
    """Return calls, of which those named `send` are to be refused."""
    names = draw(st.lists(st.sampled_from(["send", "read"]), max_size=4))
    return [
        Call(
            f"id{number}",
            name,
            draw(SECRETS if name == "send" else PLAIN),
            draw(st.booleans()),
        )
        for number, name in enumerate(names)
    ]


def judge(call):
    """Refuse whatever is named `send`."""
    return NOTICE if isinstance(call, MessageError) or call.tool == "send" else None


def settle(piece):
    """Release a piece, or judge it and release what is left."""
    if isinstance(piece, bytes):
        return piece
    return piece.settle([judge(call) for call in piece.calls])


def through(kind, wire, sizes):
    """Return what a client gets of a stream that arrives in chunks of these sizes."""
    reader, cutter, out, position, step = _reader(kind), EventCutter(100_000), b"", 0, 0
    while position < len(wire):
        size = sizes[step % len(sizes)]
        for found in cutter.feed(wire[position : position + size]):
            out += b"".join(settle(piece) for piece in reader.event(found))
        position, step = position + size, step + 1
    if rest := cutter.rest():
        out += b"".join(settle(piece) for piece in reader.event(rest))
    return out + b"".join(settle(piece) for piece in reader.end())


def _reader(kind):
    return PROTOCOLS[kind].answer_reader(Message())


def leaked(out):
    """Return how many letters of refused arguments are there, plain or escaped."""
    text = out.decode()
    escapes = sum(text.lower().count(f"\\u{ord(letter):04x}") for letter in SECRET_LETTERS)
    return escapes + sum(text.count(letter) for letter in SECRET_LETTERS)


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=25)
@given(TEXTS, calls(), st.integers(1, 12), st.lists(st.integers(1, 60), min_size=1))
def test_no_byte_of_a_refused_call_reaches_the_client(kind, text, asked, size, sizes):
    """However the stream is cut: refused arguments leak nothing, the rest is what was sent."""
    wire = stream(kind, text, asked, size)

    out = through(kind, wire, sizes)

    kept = [(c.id, c.name, c.arguments) for c in asked if c.name != "send"]
    refused = len(asked) - len(kept)
    got_text, got_calls, _ = read_stream(kind, out)
    assert leaked(out) == 0
    assert got_calls == kept
    assert got_text.startswith(text)
    assert got_text.count(NOTICE) == refused
    if not refused:
        assert out == wire


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=25)
@given(TEXTS, calls())
def test_a_whole_answer_is_judged_in_the_same_way(kind, text, asked):
    """Without streaming a refused call is replaced in the body; otherwise no byte changes."""
    document = whole(kind, text, asked)
    raw = json.dumps(document, ensure_ascii=False).encode()

    out = settle(_reader(kind).body(raw, document))

    refused = sum(call.name == "send" for call in asked)
    assert leaked(out) == 0
    assert out.decode().count(NOTICE) == refused
    for call in asked:
        assert (f'"{call.id}"' in out.decode()) is (call.name != "send")
    if not refused:
        assert out == raw


@pytest.mark.parametrize("kind", FORMATS)
def test_a_stream_that_breaks_off_inside_a_call_releases_nothing_of_it(kind):
    """A lenient client would repair half a call and run it."""
    wire = stream(kind, "hi", [Call("id0", "read", {"to": "ΩΨΞ"})])
    end = wire.index("Ψ".encode())

    try:
        out = through(kind, wire[:end], [9])
    except MessageError:
        out = b""

    assert leaked(out) == 0


def chat(**delta):
    """Return one chunk of a chat completion."""
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def fragment(**members):
    """Return a chunk with one fragment of a call."""
    return chat(tool_calls=[{"index": 0, **members}])


def block(index, **content):
    """Return the start of a content block."""
    kind = "content_block_start"
    return event({"type": kind, "index": index, "content_block": content}, kind)


def item(kind="response.output_item.done", **members):
    """Return an event of an item of a response."""
    return event({"type": kind, "output_index": 0, "item": members}, kind)


F = {"name": "read", "arguments": "{}"}
TOOL = {"type": "tool_use", "id": "a", "name": "read", "input": {}}
FUNCTION = {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"}
JSON_DELTA = {"type": "input_json_delta", "partial_json": "{}"}


def delta(index, **members):
    """Return a delta of a content block."""
    kind = "content_block_delta"
    return event({"type": kind, "index": index, "delta": members}, kind)


def parts(*found):
    """Return an event of a generation."""
    return event({"candidates": [{"content": {"parts": list(found)}}]})


AMBIGUOUS = [
    pytest.param("openai_chat", b"data: {]\n\n", id="answer that is not json"),
    pytest.param("openai_chat", b'data: {"choices":[],"choices":[]}\n\n', id="answer key twice"),
    pytest.param("openai_chat", b"data: \xff\n\n", id="answer that is not utf-8"),
    pytest.param("openai_chat", chat(Tool_Calls=[F]), id="calls in another case"),
    pytest.param("openai_chat", chat(calls_of_tools=[F]), id="unknown list in a delta"),
    pytest.param("openai_chat", event({"choices": {}}), id="choices that are no list"),
    pytest.param(
        "openai_chat",
        event({"choices": [{"index": 0, "delta": {}, "message": {"tool_calls": [F]}}]}),
        id="message in a chunk",
    ),
    pytest.param("openai_chat", chat(tool_calls=[{"id": "a", "function": F}]), id="no index"),
    pytest.param(
        "openai_chat", fragment(id="a", function=F) + fragment(id="b"), id="call with two ids"
    ),
    pytest.param(
        "openai_chat",
        fragment(id="a", function=F) + fragment(function={"name": "send"}),
        id="call with two names",
    ),
    pytest.param(
        "openai_chat", fragment(id="a", function=F, custom={"name": "x"}), id="call of two types"
    ),
    pytest.param(
        "openai_chat",
        'data: {"choices":[],"x":"\u2028data: {}"}\n\n'.encode(),
        id="field behind an unusual line end",
    ),
    pytest.param("openai_chat", b'{"choices":[]}\n\n', id="body that is no event"),
    pytest.param("openai_chat", b"event: a\nevent: b\ndata: {}\n\n", id="event with two names"),
    pytest.param("anthropic_messages", block(0, type="tool_use_v2", name="x"), id="unknown block"),
    pytest.param("anthropic_messages", block(0, **TOOL) * 2, id="block that starts twice"),
    pytest.param(
        "anthropic_messages",
        event({"type": "content_block_start", "index": 0, "content_block": TOOL}, "ping"),
        id="event named otherwise",
    ),
    pytest.param(
        "anthropic_messages",
        block(0, type="text", text="") + delta(0, **JSON_DELTA),
        id="arguments in a text block",
    ),
    pytest.param("anthropic_messages", delta(0, **JSON_DELTA), id="delta without a block"),
    pytest.param(
        "anthropic_messages",
        event({"type": "message_start", "message": {"content": [TOOL]}}, "message_start"),
        id="message that starts with a call",
    ),
    pytest.param("openai_responses", item(type="function_call_v2"), id="unknown item"),
    pytest.param(
        "openai_responses",
        item("response.output_item.added", **FUNCTION)
        + event(
            {"type": "response.completed", "response": {"output": [FUNCTION]}},
            "response.completed",
        ),
        id="response that ends inside a call",
    ),
    pytest.param(
        "openai_responses",
        item("response.something_new", **FUNCTION),
        id="item in an unknown event",
    ),
    pytest.param(
        "anthropic_messages", event({"type": "new_event"}, "new_event"), id="unknown event"
    ),
    pytest.param("gemini", parts({"function_call": F}), id="call in snake case"),
    pytest.param("gemini", parts({"callFunction": F}), id="unknown part"),
    pytest.param("gemini", event([{"candidates": []}]), id="event that is a list"),
]


@pytest.mark.parametrize(("kind", "wire"), AMBIGUOUS)
def test_an_answer_that_could_hide_a_call_is_refused(kind, wire):
    """What two clients would read differently is not released."""
    with pytest.raises(MessageError):
        through(kind, wire, [1000])


UNREADABLE = [
    pytest.param("openai_chat", fragment(id="a", function={**F, "arguments": "{]"}), id="not json"),
    pytest.param(
        "openai_chat",
        fragment(id="a", function={**F, "arguments": '{"to":1,"to":2}'}),
        id="argument twice",
    ),
    pytest.param("openai_chat", fragment(id="a", function={"arguments": "{}"}), id="no name"),
    pytest.param(
        "anthropic_messages",
        block(0, **{**TOOL, "input": {"a": 1}})
        + delta(0, **JSON_DELTA)
        + event({"type": "content_block_stop", "index": 0}, "content_block_stop"),
        id="input twice",
    ),
    pytest.param(
        "openai_responses",
        item("response.output_item.added", **{**FUNCTION, "name": "other"}) + item(**FUNCTION),
        id="name that changes",
    ),
    pytest.param(
        "gemini",
        parts({"functionCall": {"name": "read", "partialArgs": [], "willContinue": True}}),
        id="call in pieces",
    ),
]


@pytest.mark.parametrize(("kind", "wire"), UNREADABLE)
def test_a_call_that_cannot_be_read_one_way_only_is_replaced(kind, wire):
    """The answer goes on, the call does not."""
    out = through(kind, wire, [1000])

    assert NOTICE in out.decode()
    assert b'"read"' not in out


def test_the_final_response_is_held_to_what_was_judged():
    """A call that only the last event names is judged there."""
    hidden = {**FUNCTION, "name": "send", "arguments": '{"Ω":"Φ"}'}
    response = {"output": [hidden], "status": "completed"}
    wire = event({"type": "response.completed", "response": response}, "response.completed")

    out = through("openai_responses", wire, [50])

    assert leaked(out) == 0
    assert NOTICE in out.decode()


@pytest.mark.parametrize("kind", FORMATS)
def test_an_answer_with_more_calls_than_anybody_makes_is_refused(kind):
    """Each of them would be judged by itself, and all of them at once; also in a stream."""
    calls = [Call(f"id{number}", "read", {}) for number in range(CALLS_LIMIT + 1)]

    assert _reader(kind).body(b"", whole(kind, "", calls[1:])).calls
    with pytest.raises(MessageError, match="more than 128 calls"):
        _reader(kind).body(b"", whole(kind, "", calls))
    if kind == "openai_chat":  # Of one choice all are held until it ends.
        assert through(kind, stream(kind, "", calls[1:]), [9000])
        with pytest.raises(MessageError, match="more than 128 calls"):
            through(kind, stream(kind, "", calls), [9000])


def test_what_is_held_of_a_call_is_its_bytes():
    """A document takes many times its text; it is read again where the call is refused."""
    reader, call = _reader("openai_chat"), Call("c", "send", {"Ω": "ΦΛΣ"})
    events = EventCutter(100_000).feed(stream("openai_chat", "", [call]))

    while len(reader.held) < 2:
        reader.event(events.pop(0))

    assert {type(part) for event in reader.held for part in astuple(event)} == {bytes, str}
    assert all(event.document is not None for event in reader.held)
