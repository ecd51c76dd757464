"""Webhooks against a real receiver on loopback: signed, sent again, given up, never in the way."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from types import SimpleNamespace

import httpx
import pytest

from guard.console.webhooks import (
    DELAYS,
    QUEUE,
    Hook,
    Message,
    PendingNotices,
    Shape,
    Webhooks,
    load_hooks,
    shaped,
)
from guard.core.errors import InputError
from guard.operations.approvals import PrincipalStatuses
from guard.operations.metrics import ConsoleMetrics
from guard.provenance.approvals import ApprovalRequest, AskedCall, AskedReceiver
from guard.provenance.principal_status import BreakGlass, Pause

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


async def _until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  (there is no event for it)
            await asyncio.sleep(0.01)


async def test_a_message_is_signed_as_standard_webhooks_say(sender):
    """A receiver that has the key checks id, time and body."""
    sent = sender(_hook())
    sent.hooks.tell(_message())
    await _until(lambda: sent.requests)
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
    await _until(lambda: len(sent.requests) == len(codes) + 1)
    names = [one.headers["webhook-id"] for one in sent.requests]
    assert names == ["msg_1"] * len(codes) + ["msg_2"]
    assert {one.url.host for one in sent.requests} == {"good.test"}
    assert sent.delays == delays
    assert [fields["why"] for _, fields in sent.lines] == [why] * bool(why)


async def test_a_hook_that_hangs_harms_nobody(sender):
    """Another hook gets its messages, ``tell`` returns immediately, and the queue is bounded."""
    hanging = _hook("hangs")
    sent = sender(hanging, _hook())
    for number in range(QUEUE + 10):
        sent.hooks.tell(_message(number))
        await asyncio.sleep(0)
    await _until(lambda: any(one.url.host == "good.test" for one in sent.requests))
    assert hanging.waiting.qsize() <= QUEUE
    assert {fields["why"] for _, fields in sent.lines} == {"too many wait"}


def _asked(number, *, principal="alice", tool="send", receiver="drop@evil.test", people=1):
    reached = AskedReceiver("mail", receiver, "external", "tainted", "untrusted_result", "$.to")
    call = AskedCall(f"d{number}", "", "", "", tool, "mcp", ("x",), (reached,), '{"to": "secret"}')
    return ApprovalRequest(
        "default", principal, "s", "p", NOW, NOW + 600, 60, (call,), people=people
    )


EMPTY = PrincipalStatuses([], [], [])


def test_a_message_names_no_receiver_and_no_argument():
    """A chat service learns who asks with what tool, and of receivers their kinds."""
    news = PendingNotices(lambda: "https://guard.test", lambda: NOW)
    [message] = news.of([[_asked(1)]], EMPTY)
    for shape in Shape:
        text = json.dumps(shaped(shape, message))
        assert "evil.test" not in text
        assert "secret" not in text
        assert "https://guard.test/approvals/default/d1" in text
    assert "an e-mail address" in message.text


def test_what_an_agent_has_named_is_text_in_every_shape():
    """No mention, link, line or markup of its own making reaches the people of a channel."""
    news = PendingNotices(lambda: "https://guard.test", lambda: NOW)
    name = "<!channel> *x* [a](http://evil.test)\n\u202ereversed"
    [message] = news.of([[_asked(1, tool=name, principal="p" * 500)]], EMPTY)
    slack, teams = shaped(Shape.SLACK, message), shaped(Shape.TEAMS, message)
    assert "<!channel>" not in slack["text"]
    assert slack["blocks"][0]["text"]["type"] == "plain_text"
    body = teams["attachments"][0]["content"]["body"]
    assert body[0]["type"] == "RichTextBlock"
    assert "\n" not in message.text
    assert "\u202e" not in message.text
    assert len(message.text) < 500


def test_people_are_told_once_and_of_many_in_one_message():
    """What was told is not told again while it waits; a burst is one message, not a hundred."""
    news = PendingNotices(lambda: "https://guard.test", lambda: NOW)
    groups = [[_asked(n)] for n in range(3)]
    assert len(news.of(groups, EMPTY)) == 3
    assert news.of(groups, EMPTY) == []
    [many] = news.of([*groups, *([_asked(n)] for n in range(10, 110))], EMPTY)
    assert many.text.startswith("100 different requests wait")


def test_pauses_and_break_glasses_are_told_as_well():
    """Wanted, then open: two messages, loud ones."""
    news = PendingNotices(lambda: "https://guard.test", lambda: NOW)
    glass = BreakGlass("g1", "alice", "pay", "mail is down", 600, NOW, 0.0, "ann", "i", "ann")
    pause = Pause("alice", 20, NOW, NOW + 60)
    found = news.of([], PrincipalStatuses([("default", pause)], [], [("default", glass)]))
    assert [one.kind for one in found] == ["guard.principal_paused", "guard.break_glass_wanted"]
    [opened] = news.of([], PrincipalStatuses([], [("default", glass)], []))
    assert opened.kind == "guard.break_glass_open"
    assert "mail is down" in opened.text


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


def test_a_file_of_hooks(tmp_path):
    """The URL of a chat service stays in the file; the key may be in the form of the standard."""
    (tmp_path / "s").write_text("whsec_" + base64.b64encode(KEY).decode(), "utf-8")
    path = tmp_path / "hooks.toml"
    path.write_text(
        '[[webhook]]\nname = "ops"\nurl = "https://chat.test/x"\nshape = "slack"\nsecret = "s"',
        "utf-8",
    )
    [hook] = load_hooks(path)
    assert (hook.name, hook.shape, hook.key) == ("ops", Shape.SLACK, KEY)
