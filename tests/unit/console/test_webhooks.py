"""Webhooks against a real receiver on loopback: signed, sent again, given up, never in the way."""

import asyncio
import base64
import hashlib
import hmac
import html
import json
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest

from guard.console.webhooks import (
    DELAYS,
    Hook,
    Message,
    PendingNotices,
    Shape,
    Webhooks,
    desktop_command,
    load_hooks,
    shaped,
)
from guard.core.errors import InputError
from guard.operations.approvals import PrincipalStatuses
from guard.operations.deployment import ConsoleMetrics
from guard.provenance.approvals import ApprovalRequest, AskedCall, AskedReceiver
from tests.guards import until

NOW = 1_700_000_000.0
KEY = b"the key of the tests"


@pytest.fixture
async def sender():
    """Return a function: webhooks to some hooks, whose transport a test answers for."""
    tasks = []

    def start(*hooks, answers=()):
        found = SimpleNamespace(lines=[], delays=[], requests=[], at=NOW, metrics=ConsoleMetrics())
        audit = SimpleNamespace(event=lambda name, fields: found.lines.append((name, fields)))
        left = list(answers)

        async def sleep(seconds):
            found.delays.append(seconds)
            found.at += seconds

        async def receive(request):
            found.requests.append(request)
            if request.url.host == "hangs.test":
                await asyncio.Event().wait()
            return left.pop(0) if left else httpx.Response(204)

        transport = httpx.MockTransport(receive)
        found.hooks = Webhooks(hooks, audit, found.metrics, lambda: found.at, sleep, transport)
        tasks.append(asyncio.get_running_loop().create_task(found.hooks.run()))
        return found

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _message(number=1, expires=NOW + 3600):
    return Message(f"msg_{number}", "guard.approval_waiting", "text", "http://c/", NOW, expires)


def _hook(name="good"):
    return Hook(name, f"https://{name}.test/", Shape.JSON, KEY)


@pytest.mark.parametrize("is_mac", [True, False])
def test_the_text_of_a_desktop_notification_is_one_argument(is_mac):
    """An agent that names itself like an option, markup or a script is shown as text."""
    for text in ("--app=x", "<b>y</b> & z", 'end run" do shell script "id"', "-e\nbeep"):
        message = Message("m", "k", text, "https://console.test/", NOW, NOW)
        words = desktop_command(message, is_mac=is_mac)
        assert html.unescape(words[-1]) == f"{text} https://console.test/"
        assert words[:-1] == desktop_command(replace(message, text="x"), is_mac=is_mac)[:-1]
        assert is_mac or ("<" not in words[-1] and words[1] == "--")


async def test_a_message_is_signed_as_standard_webhooks_say(sender):
    """A receiver that has the key checks id, time and body."""
    sent = sender(_hook())
    sent.hooks.tell(_message())
    await until(lambda: sent.requests)
    [request] = sent.requests
    named = (request.headers["webhook-id"], request.headers["webhook-timestamp"])
    text = b".".join((*(one.encode() for one in named), request.content))
    expected = base64.b64encode(hmac.new(KEY, text, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"
    assert json.loads(request.content)["type"] == "guard.approval_waiting"


@pytest.mark.parametrize(
    ("codes", "expires", "delays", "why"),
    [
        ((500, 307, 200), NOW + 3600, list(DELAYS), ""),
        ((500,) * (1 + len(DELAYS)), NOW + 3600, list(DELAYS), "status 500"),
        ((500, 500), NOW + 10, list(DELAYS[:1]), "status 500"),
    ],
    ids=["accepted in the end", "given up", "expired"],
)
async def test_a_message_is_sent_again_under_the_same_id(sender, codes, expires, delays, why):
    """A redirect is not followed; a message that is given up is on record."""
    elsewhere = {"location": "http://evil.test/"}
    sent = sender(_hook(), answers=[httpx.Response(one, headers=elsewhere) for one in codes])
    sent.hooks.tell(_message(1, expires))
    sent.hooks.tell(_message(2, NOW + 10**6))
    await until(lambda: len(sent.requests) == len(codes) + 1)
    names = [one.headers["webhook-id"] for one in sent.requests]
    assert names == ["msg_1"] * len(codes) + ["msg_2"]
    assert {one.url.host for one in sent.requests} == {"good.test"}
    assert sent.delays == delays
    assert [fields["why"] for _, fields in sent.lines] == [why] * bool(why)


def _asked(number, *, principal="alice", tool="send", receiver="drop@evil.test", people=1):
    reached = AskedReceiver("mail", receiver, "external", "tainted", "untrusted_result", "$.to")
    call = AskedCall(f"d{number}", "", "", "", tool, "mcp", ("x",), (reached,), '{"to": "secret"}')
    return ApprovalRequest(
        "default", principal, "s", "p", NOW, NOW + 600, 60, (call,), people=people
    )


EMPTY = PrincipalStatuses([], [], [])


def test_a_message_names_no_receiver_and_what_an_agent_named_is_text():
    """No recipient, argument, mention, link, line or markup reaches the people of a channel."""
    news = PendingNotices("https://guard.test", lambda: NOW)
    name = "<!channel> *x* [a](http://evil.test)\n\u202ereversed"
    [message] = news.of([[_asked(1, tool=name, principal="p" * 500)]], EMPTY)
    for shape in Shape:
        text = json.dumps(shaped(shape, message))
        assert "drop@evil.test" not in text
        assert "secret" not in text
        assert "https://guard.test/approvals/default/d1" in text
    slack = shaped(Shape.SLACK, message)
    assert "<!channel>" not in slack["text"]
    assert slack["blocks"][0]["text"]["type"] == "plain_text"
    assert not {"\n", "\u202e"} & set(message.text)
    assert len(message.text) < 500
    assert "an e-mail address" in message.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[[webhook]]\nname = "a"\nurl = "http://chat.test/x"\nsecret = "s"',
        '[[webhook]]\nname = "a"\nurl = "https://chat.test/x"\nsecret = "none"',
        '[[webhook]]\nname = "a b"\nurl = "https://chat.test/x"\nsecret = "s"',
        '[[webhook]]\nname = "a"\nurl = "https://chat.test/x"\nsecret = "s"\nshape = "irc"',
        '[[webhook]]\nname = "a"\nurl = "https://chat.test/x"\nsecret = "bad"',
    ],
)
def test_a_file_that_is_wrong_is_refused_at_the_start(tmp_path, text):
    """In the clear, without a key, or of a shape that nobody knows."""
    (tmp_path / "s").write_text("secret", "utf-8")
    (tmp_path / "bad").write_text("whsec_???", "utf-8")
    path = tmp_path / "hooks.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError):
        load_hooks(path)
