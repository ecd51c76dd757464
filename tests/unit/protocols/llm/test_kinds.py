"""Every kind has a class, and the class decides: calls are judged, results are labelled."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.core.errors import MessageError
from guard.protocols.base import discover_protocols
from guard.protocols.llm.model_answers import Held
from guard.protocols.messages import Message
from tests.model_api_kinds import unclassified
from tests.model_wires import FORMATS, event
from tests.roads import http_request

PROTOCOLS = {protocol.name: protocol for protocol in discover_protocols()}
FILES = {name: "anthropic" if name == "anthropic_messages" else name for name in FORMATS}
SECRET = "ΩΨΞ"
NOTICE = "refused"
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
}


def classes(kind):
    """Return the class of each kind in answers of an API."""
    table = PROTOCOLS[kind].table
    return dict(table.units[table.answer["units"]].classes)


def unit(kind, name, number):
    """Return a unit of a kind; a call has the secret in every place of arguments."""
    is_call = classes(kind)[name] == "call"
    word = SECRET if is_call else "word"
    arguments = json.dumps({"to": word}, ensure_ascii=False)
    if kind == "gemini":
        return {name: {"name": "send", "args": {"to": word}} if is_call else {"text": word}}
    if kind == "openai_chat":
        inner = {"name": "send", "arguments" if name == "function" else "input": arguments}
        return {"id": f"c{number}", "type": name, name: inner}
    if kind == "anthropic_messages":
        return {"type": name, "id": f"c{number}", "name": "send", "input": {"to": word}}
    places = {"arguments": arguments, "input": word, "action": {"commands": [word]}}
    return {"type": name, "id": f"i{number}", "call_id": f"c{number}", "name": "send", **places}


def answer(kind, units, *, streamed):
    """Return an answer with these units, as one document or as events."""
    numbered = list(enumerate(units))
    if kind == "openai_chat":
        member = "delta" if streamed else "message"
        calls = [{"index": n, **one} if streamed else one for n, one in numbered]
        choices = [{"index": 0, member: {"tool_calls": [call]}} for call in calls]
        end = {"index": 0, member: {}, "finish_reason": "tool_calls"}
        documents = [{"choices": [choice]} for choice in [*choices, end]]
        whole = {"choices": [{**end, member: {"tool_calls": calls}}]}
    elif kind == "anthropic_messages":
        place = "content_block"
        documents = [
            one
            for n, block in numbered
            for one in (
                {"type": f"{place}_start", "index": n, place: block},
                {"type": f"{place}_stop", "index": n},
            )
        ]
        whole = {"type": "message", "content": units}
    elif kind == "openai_responses":
        documents = [
            {"type": f"response.output_item.{step}", "output_index": n, "item": item}
            for n, item in numbered
            for step in ("added", "done")
        ]
        whole = {"output": units, "status": "completed"}
        documents.append({"type": "response.completed", "response": whole})
    else:
        documents = [{"candidates": [{"content": {"parts": [part]}}]} for part in units]
        whole = {"candidates": [{"content": {"parts": units}}]}
    if streamed:
        return b"".join(event(document, document.get("type", "")) for document in documents)
    return json.dumps(whole, ensure_ascii=False).encode()


def released(kind, wire, *, streamed):
    """Return what a client receives if every call is refused, and the number of judged calls."""
    reader = PROTOCOLS[kind].answer_reader(Message())
    out, judged = b"", 0

    def release(pieces):
        nonlocal out, judged
        for piece in pieces:
            calls = len(piece.calls) if isinstance(piece, Held) else 0
            out += piece.settle([NOTICE] * calls) if isinstance(piece, Held) else piece
            judged += calls

    if streamed:
        for one in wire.split(b"\n\n")[:-1]:
            release(reader.event(one + b"\n\n"))
        release(reader.end())
    else:
        release([reader.body(wire, json.loads(wire))])
    return out, judged


@st.composite
def sequences(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Return an API and kinds of its answers; members of calls in chat are calls only."""
    kind = draw(st.sampled_from(FORMATS))
    known = classes(kind)
    names = sorted(k for k in known if kind != "openai_chat" or known[k] == "call")
    return kind, draw(st.lists(st.sampled_from(names), max_size=6))


@settings(max_examples=60)
@given(sequences(), st.booleans())
def test_every_call_is_judged_before_a_client_sees_it(sequence, streamed):
    """Whatever kinds surround it, and in either form of an answer."""
    kind, names = sequence
    wire = answer(kind, [unit(kind, n, i) for i, n in enumerate(names)], streamed=streamed)

    out, judged = released(kind, wire, streamed=streamed)

    assert judged == sum(classes(kind)[name] == "call" for name in names)
    assert not set(SECRET) & set(out.decode())


@pytest.mark.parametrize("kind", FORMATS)
def test_the_table_classifies_every_kind_of_the_installed_sdk(kind):
    """A kind of a newer SDK is named here before an agent meets it."""
    assert unclassified(FILES[kind]) == []


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("kind", FORMATS)
def test_an_unknown_kind_of_an_answer_is_refused_by_name(kind, streamed):
    """The error says which kind the guard lacks."""
    made = {"type": "new_kind", "id": "a", "new_kind": {"a": 1}}
    made = {"new_kind": {"a": 1}} if kind == "gemini" else made

    with pytest.raises(MessageError, match="new_kind"):
        released(kind, answer(kind, [made], streamed=streamed), streamed=streamed)


def read(kind, document, **changes):
    """Return a request as the guard reads it."""
    request = http_request(document, target=PATHS[kind], host="m.test", scheme="https")
    return PROTOCOLS[kind].parse(replace(request, **changes))


def block(**members):
    """Return a request of Anthropic with one block, in a message of the system."""
    return {"messages": [{"role": "system", "content": [members]}]}


REPORTED = [
    ("openai_responses", {"input": [{"type": "program_output", "result": "r"}]}),
    ("openai_responses", {"input": [{"type": "tool_search_output", "tools": []}]}),
    ("openai_responses", {"input": [{"type": "local_shell_call_output", "output": "r"}]}),
    ("openai_responses", {"input": [{"role": "user", "content": [{"type": "new"}]}]}),
    ("openai_chat", {"messages": [{"role": "new", "content": "r"}]}),
    ("openai_chat", {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}),
    ("anthropic_messages", block(type="tool_result", tool_use_id="t", content="r")),
    ("gemini", {"contents": [{"parts": [{"function_response": {"name": "f"}}]}]}),
]


@pytest.mark.parametrize(("kind", "body"), REPORTED)
def test_a_result_in_a_request_is_labelled(kind, body):
    """An unknown part of a message counts as one: it may repeat a result."""
    assert len(read(kind, body).reported) == 1


UNKNOWN = [
    ("openai_responses", {"input": [{"type": "new_kind"}]}),
    ("anthropic_messages", block(type="new_kind")),
    ("gemini", {"contents": [{"parts": [{"new_kind": {"a": 1}}]}]}),
    ("openai_chat", {"messages": "text"}),
    ("openai_chat", {"messages": [{"role": "assistant", "tool_calls": "x"}]}),
    ("anthropic_messages", {"messages": [], "mcp_servers": {}}),
    ("gemini", {"contents": [{"parts": "text"}]}),
]


@pytest.mark.parametrize(("kind", "body"), UNKNOWN)
def test_an_unknown_kind_of_a_request_is_refused_by_name(kind, body):
    """It could be a result without a label; another structure could be read all the same."""
    with pytest.raises(MessageError, match=r"new_kind|newKind|must be a list"):
        read(kind, body)


def test_tools_that_a_conversation_adds_are_judged_like_those_of_the_request():
    """A block may add a tool of the provider in the middle of a conversation."""

    def added(tool):
        definition = {"type": "tool_definition", "definition": tool}
        made = read("anthropic_messages", block(type="tool_addition", tool=definition))
        return [call.tool for call in made.calls]

    assert added({"name": "own", "input_schema": {}}) == []
    assert added({"type": "web_fetch_20260318", "name": "f"}) == ["llm.hosted.web_fetch_20260318"]


CALLED = {"type": "function_call", "call_id": "c0", "name": "send", "arguments": "{}"}
CALLED["caller"] = {"type": "program", "caller_id": "p"}
PROGRAM = {"type": "program", "call_id": "p", "code": "x"}
RETURNED = {"type": "function_call_output", "call_id": "c", "output": ""}
RETURNED["caller"] = CALLED["caller"]


@pytest.mark.parametrize(
    ("items", "history", "is_read"),
    [
        ([CALLED], [], False),
        ([PROGRAM, CALLED], [], True),
        ([CALLED], [PROGRAM], True),
        ([CALLED], [RETURNED], True),
    ],
)
def test_a_call_must_name_a_program_of_its_conversation_as_its_caller(items, history, is_read):
    """In this answer, or in the history of the request."""
    asked = read("openai_responses", {"input": history})
    reader = PROTOCOLS["openai_responses"].answer_reader(asked)
    proposed = reader.body(b"", {"output": items}).calls[-1]
    assert isinstance(proposed, MessageError) is not is_read


def test_fragments_of_a_command_must_agree_with_the_call():
    """A client could run either."""
    place = {"output_index": 0, "command_index": 0}
    item = {"type": "shell_call", "call_id": "a", "action": {"commands": [SECRET]}}
    documents = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.shell_call_command.delta", **place, "delta": "ls"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    reader = PROTOCOLS["openai_responses"].answer_reader(Message())

    [piece] = [p for d in documents for p in reader.event(event(d, d["type"])) if p]

    assert isinstance(piece.calls[0], MessageError)


@pytest.mark.parametrize(("execution", "calls"), [("client", 1), ("server", 0)])
def test_a_search_for_tools_is_a_call_if_the_agent_carries_it_out(execution, calls):
    """A search of the provider was judged when the request asked for it."""
    item = {"type": "tool_search_call", "call_id": "c", "execution": execution, "arguments": {}}
    wire = answer("openai_responses", [item], streamed=True)

    assert released("openai_responses", wire, streamed=True)[1] == calls


@pytest.mark.parametrize("kind", FORMATS)
def test_a_websocket_to_a_model_is_refused_with_upgrade_required(kind):
    """Clients then use requests over HTTP, whichever part refuses the connection."""
    headers = (("upgrade", "websocket"), ("connection", "upgrade"))

    with pytest.raises(MessageError, match="websocket") as refused:
        read(kind, None, method="GET", body=b"", headers=headers)

    assert refused.value.status == 426
    forbidden = MessageError("upgrade", "protocol upgrades are not accepted", status=403)
    assert PROTOCOLS[kind].unreadable(forbidden, "d").status == 426
