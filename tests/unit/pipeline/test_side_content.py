"""Data around a message: headers, paths, queries and a client's answers are judged as well."""

import base64
import json

import pytest

from guard.detectors import DetectorResources
from guard.detectors.secrets import Secrets
from guard.pipeline.exchange import Exchange
from guard.protocols.http.message import HttpReply
from tests.guards import shipped
from tests.roads import Road, http_request, rpc, tool_call, without_memo

KEY = "ghp_" + "0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"
CODED = base64.b64encode(b"password=Xk29fLq0Zr7TbW1m").decode()
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36"
BOUNDARY = "----WebKitFormBoundary7MA4YWxkTrZu0gW"
PING = rpc("ping")
CALL = tool_call("read_page", {"url": "https://docs.elsewhere.test/"})


@pytest.fixture(name="enforcement_of")
def _enforcement_of(store):
    secrets = Secrets.create(DetectorResources())
    bare = {"detectors": (secrets,), "declarations": None}
    return lambda name: Road(store, shipped(name), **bare).enforcement


def request(document=None, *, host="tools.test:80", **more):
    """Return a request of a browser; names of headers have underscores for dashes."""
    fields = ("method", "target", "chosen")
    known = {name: more.pop(name) for name in fields if name in more}
    usual = ("user-agent", AGENT), ("accept", "application/json, text/event-stream")
    headers = [(name.replace("_", "-"), value) for name, value in more.items()]
    return http_request(document, *usual, *headers, host=host, **known)


async def refused(enforcement, sent):
    """Return whether a request stays here."""
    return isinstance(await enforcement.requests.on_request(sent), HttpReply)


def plain(**changed):
    """Return a plain GET."""
    return request(method="GET", **{"target": "/page", "host": "web.test:80", **changed})


def named(sent, host):
    """Return a request that calls its server by another name."""
    return without_memo(sent, headers=(*sent.headers, ("host", host)))


def typed(sent, kind):
    """Return a request whose body is said to be of another kind."""
    kept = tuple(pair for pair in sent.headers if pair[0] != "content-type")
    return without_memo(sent, headers=(*kept, ("content-type", kind)))


@pytest.mark.parametrize("secret", [KEY, CODED])
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(lambda s: plain(target=f"/a/{s}/b"), id="path"),
        pytest.param(lambda s: plain(target=f"/a?q={s}"), id="query"),
        pytest.param(lambda s: plain(x_note=s), id="custom header"),
        pytest.param(lambda s: plain(cookie=f"a=1; b={s}"), id="cookie"),
        pytest.param(lambda s: plain(referer=f"http://web.test/{s}"), id="referer"),
        pytest.param(lambda s: plain(accept_language=s), id="ordinary header"),
        pytest.param(lambda s: plain(proxy_note=s), id="proxy header"),
        pytest.param(lambda s: named(plain(), f"{s}.test"), id="host"),
        pytest.param(lambda s: named(request(CALL), s), id="mcp host"),
        pytest.param(lambda s: request(CALL, proxy_note=s), id="mcp proxy header"),
        pytest.param(lambda s: typed(plain(), f"text/plain; note={s}"), id="type"),
        pytest.param(lambda s: typed(plain(), f'text/plain; charset="{s}"'), id="charset"),
        pytest.param(lambda s: typed(plain(), f"multipart/form-data; boundary={s}"), id="boundary"),
        pytest.param(lambda s: typed(request(CALL), f"application/json; a={s}"), id="mcp type"),
        pytest.param(lambda s: plain(mcp_session_id=s), id="mcp get"),
        pytest.param(lambda s: plain(mcp_session_id="1", target=f"/mcp?q={s}"), id="mcp query"),
        pytest.param(lambda s: plain(mcp_session_id="1", target=f"/{s}"), id="mcp path"),
        pytest.param(lambda s: request(PING, x_note=s), id="mcp post"),
        pytest.param(lambda s: request(CALL, mcp_session_id=s), id="mcp session id"),
        pytest.param(lambda s: request(CALL, last_event_id=s), id="mcp event id"),
    ],
)
async def test_a_secret_around_a_message_is_found(enforcement_of, sent, secret):
    """Under the strict policy, wherever it stands and in whatever coding."""
    assert await refused(enforcement_of("examples/strict.yaml"), sent(secret))


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(plain(), id="get"),
        pytest.param(plain(accept_language="en-US,en;q=0.9", cookie="theme=dark"), id="browser"),
        pytest.param(request(CALL), id="call"),
        pytest.param(
            request(
                CALL,
                mcp_session_id="6ba7b810-9dad-11d1-80b4-00c04fd430c8",
                traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                authorization=f"Bearer {KEY}",
            ),
            id="call in a session",
        ),
        pytest.param(request(PING, x_tenant="blue"), id="custom header"),
        pytest.param(plain(mcp_session_id="4bf92f3577b34da6a3ce929d0e0e4736"), id="stream"),
        pytest.param(named(request(CALL), "mcp.tools.svc.cluster.local:8801"), id="own name"),
        pytest.param(typed(request(CALL), "application/json; charset=utf-8"), id="charset"),
        pytest.param(typed(plain(), f"multipart/form-data; boundary={BOUNDARY}"), id="boundary"),
    ],
)
@pytest.mark.parametrize("policy", ["examples/strict.yaml", "default.yaml"])
async def test_ordinary_messages_pass(enforcement_of, sent, policy):
    """Whatever any client says of itself, and credentials for the operator's own upstream."""
    if policy == "default.yaml" and (b"read_page" in sent.body or sent.host == "web.test:80"):
        sent = request(PING)  # What the default policy asks about by itself.

    assert not await refused(enforcement_of(policy), sent)


@pytest.mark.parametrize("document", [PING, CALL, {**PING, "method": "tools/list"}])
async def test_mcp_at_a_host_that_the_agent_chose_is_a_request_to_that_host(
    enforcement_of, document
):
    """On a forward listener an MCP message must not reach where a plain one may not."""
    enforcement = enforcement_of("default.yaml")
    call = {**document}
    if "params" in call:
        call["params"] = {"name": "memory_search", "arguments": {"query": "x"}}

    assert await refused(enforcement, request(call, host="evil.test:80", chosen=True))
    assert not await refused(enforcement, request(call, host="example.com:80", chosen=True))
    assert not await refused(enforcement, request(call, host="evil.test:80"))


ELICITED = {"action": "accept", "content": {"note": KEY}}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": KEY}, "model": "m"}


@pytest.mark.parametrize(
    "document",
    [
        {"jsonrpc": "2.0", "id": 7, "result": ELICITED},
        {"jsonrpc": "2.0", "id": 7, "result": SAMPLED},
        {"jsonrpc": "2.0", "id": 7, "result": {"roots": [{"uri": f"file:///{KEY}"}]}},
        {"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": KEY}},
        {"jsonrpc": "2.0", "id": 7, "result": {"anything": KEY}},
        {**CALL, "params": {**CALL["params"], "inputResponses": {"a": ELICITED}}},
        {**CALL, "params": {**CALL["params"], "inputResponses": {"a": {"result": SAMPLED}}}},
    ],
)
async def test_what_a_client_answers_its_server_is_judged(enforcement_of, document):
    """In every form and revision; a secret in it needs a person under the default policy too."""
    answer = await enforcement_of("examples/strict.yaml").requests.on_request(request(document))

    if "method" in document:
        assert "guard" in json.loads(answer.body)["result"]["_meta"]
    else:
        assert (answer.status, answer.body) == (202, b"")
        harmless = json.loads(json.dumps(document).replace(KEY, "Ada"))
        enforcement = enforcement_of("default.yaml")
        assert await refused(enforcement, request(harmless))
        await server_asks(enforcement, document.get("result", {}))
        assert not await refused(enforcement, request(harmless))
    assert await refused(enforcement_of("default.yaml"), request(document))


async def server_asks(enforcement, answer, identifier=7):
    """Let the server ask in its stream what an answer is one to."""
    kinds = {
        "action": "elicitation/create",
        "roots": "roots/list",
        "model": "sampling/createMessage",
    }
    method = next((kinds[name] for name in answer if name in kinds), "ping")
    asked = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": {}}
    opened = await enforcement.requests.on_request(request(PING))
    assert isinstance(opened, Exchange)
    released = await enforcement.responses.on_message(opened, json.dumps(asked).encode())
    assert released is None or json.loads(released) == asked


ROOT_ANSWER = {"roots": [{"uri": "file:///srv", "name": "work"}]}


async def test_an_answer_needs_its_question(enforcement_of):
    """One of its kind, under its very id, that the server asked this client."""
    enforcement = enforcement_of("default.yaml")
    answer = {"jsonrpc": "2.0", "id": 7, "result": ROOT_ANSWER}

    for method, identifier in (({"action": 1}, 7), (ROOT_ANSWER, "7"), (ROOT_ANSWER, 8)):
        await server_asks(enforcement, method, identifier)
        assert await refused(enforcement, request(answer))
    await server_asks(enforcement, ROOT_ANSWER)
    assert not await refused(enforcement, request(answer))


async def test_a_request_that_goes_on_answers_what_its_server_asked(
    enforcement_of,
):
    """Since 2026-07-28 the questions stand in a result, by name."""
    enforcement = enforcement_of("default.yaml")
    calls = {**CALL, "params": {"name": "memory_search", "arguments": {"query": "x"}}}
    told = {"inputResponses": {"who": {"action": "accept", "content": {"note": "Ada"}}}}
    goes_on = {**calls, "params": {**calls["params"], **told}}
    asked = {"who": {"method": "elicitation/create", "params": {"message": "Who?"}}}

    assert await refused(enforcement, request(goes_on))
    opened = await enforcement.requests.on_request(request(calls))
    assert isinstance(opened, Exchange)
    result = {"resultType": "input_required", "inputRequests": asked}
    said = {"jsonrpc": "2.0", "id": calls["id"], "result": result}
    await enforcement.responses.on_answer(opened, json.dumps(said).encode(), 200)
    assert not await refused(enforcement, request(goes_on))
