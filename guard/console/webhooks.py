"""Signed webhooks about requests that wait, in the formats of chat services.

A message is the question without recipients, untrusted text and arguments, with a link to the
request.  It is signed as Standard Webhooks describe
(HMAC-SHA256 over id, timestamp and body).  Each hook has a bounded queue and its own task, so a
hook that does not respond delays no other.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import math
import subprocess
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import httpx
from pydantic import Field

from guard.console.access import is_private_in_transit
from guard.core.errors import AuditError, InputError
from guard.environment import inherited
from guard.operations.deployment import Body
from guard.provenance.questions import redacted
from guard.settings import read_secret, read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.operations.approvals import PrincipalStatuses
    from guard.operations.deployment import ConsoleMetrics
    from guard.provenance.approvals import ApprovalRequest
    from guard.provenance.principal_status import BreakGlass, Pause
    from guard.telemetry.audit_log import AuditLogFile, NoAuditLog

EVENT: Final = "guard.webhook"
QUEUE: Final = 100
"""Maximum number of messages that wait for one hook."""
DELAYS: Final = (5.0, 60.0)
"""Seconds before each further attempt."""
ATTEMPT_SECONDS: Final = 10.0
"""Timeout of one attempt."""
AT_ONCE: Final = 5
"""Number of new groups of requests above which one message gives their number."""
TEXT: Final = 120
"""Maximum number of characters of a name that an agent has chosen."""
TITLE: Final = "Egress guard"


class Shape(StrEnum):
    """Format of a service."""

    JSON = "json"
    SLACK = "slack"
    DESKTOP = "desktop"
    """Notification on the desktop of this user, by ``notify-send`` or ``osascript``."""


class HookEntry(Body):
    """Table ``[[webhook]]`` of the file of ``--console-webhooks``."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    """Name in audit lines; the URL of a chat service is a secret."""
    url: str = ""
    shape: Shape = Shape.JSON
    secret: Path | None = None
    """File with the key of the signature, beside this one; ``whsec_`` and base64, or any text."""


class WebhookFile(Body):
    """The whole file."""

    webhook: Annotated[tuple[HookEntry, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Message:
    """Message to people."""

    id: str
    """Same id for every attempt: receivers drop duplicates."""
    kind: str
    """``guard.approval_waiting``, ``guard.break_glass_open``, …"""
    text: str
    link: str
    at: float
    expires: float
    """Time after which it is not sent; seconds since the epoch."""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hook:
    """Receiver of messages."""

    name: str
    """Name in audit lines."""
    url: str
    shape: Shape
    key: bytes
    """Key of the signature."""
    waiting: asyncio.Queue[Message] = field(default_factory=lambda: asyncio.Queue(QUEUE))


def load_hooks(path: Path | None) -> list[Hook]:
    """Return the hooks of a file.

    Raises:
        InputError: the file, or one that it names, cannot be read or says something else.
    """
    if path is None:
        return []
    found = read_table(path, "webhook", WebhookFile).webhook
    hooks: list[Hook] = []
    for one in found:
        if one.shape is Shape.DESKTOP:
            hooks.append(Hook(one.name, "", one.shape, b""))
            continue
        if not is_private_in_transit(one.url):
            raise InputError(f"webhook file `{path}`: the URL of `{one.name}` is no https URL")
        if one.secret is None:
            raise InputError(f"webhook file `{path}`: `{one.name}` has no `secret`")
        key = _key(read_secret(path.parent / one.secret))
        hooks.append(Hook(one.name, one.url, one.shape, key))
    return hooks


def _key(secret: str) -> bytes:
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError as error:
        raise InputError("the secret of a webhook is `whsec_` and base64, or any text") from error


class Webhooks:
    """Sender of messages to every hook.

    Args:
        hooks: receivers.
        audit: the audit log; one line for each message that is given up.
        metrics: counts attempts.
        now: seconds since the epoch.
        sleep: waits before another attempt.
        transport: sends requests; None for the network.
    """

    def __init__(
        self,
        hooks: Sequence[Hook],
        audit: AuditLogFile | NoAuditLog,
        metrics: ConsoleMetrics,
        now: Callable[[], float],
        sleep: Callable[[float], Any] = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._hooks = list(hooks)
        self._audit = audit
        self._metrics = metrics
        self._now = now
        self._sleep = sleep
        self._transport = transport

    def tell(self, message: Message) -> None:
        """Queue a message for every hook; returns immediately."""
        for hook in self._hooks:
            try:
                hook.waiting.put_nowait(message)
            except asyncio.QueueFull:
                self._given_up(hook, message, "too many wait")

    async def run(self) -> None:
        """Send queued messages until cancelled."""
        async with httpx.AsyncClient(
            timeout=ATTEMPT_SECONDS,
            follow_redirects=False,
            trust_env=False,
            transport=self._transport,
        ) as client:
            await asyncio.gather(*(self._serve(client, hook) for hook in self._hooks))

    async def _serve(self, client: httpx.AsyncClient, hook: Hook) -> None:
        while True:
            message = await hook.waiting.get()
            for delay in (*DELAYS, math.inf):
                why = await self._attempt(client, hook, message)
                if not why or self._now() + delay >= message.expires:
                    break
                self._metrics.webhooks.labels("retried").inc()
                await self._sleep(delay)
            if why:
                self._given_up(hook, message, why)
            else:
                self._metrics.webhooks.labels("sent").inc()

    async def _attempt(self, client: httpx.AsyncClient, hook: Hook, message: Message) -> str:
        """Send a message once; return the error, empty where it was accepted."""
        if hook.shape is Shape.DESKTOP:
            return await _shown(message)
        body = json.dumps(shaped(hook.shape, message)).encode()
        at = str(int(self._now()))
        signed = hmac.digest(
            hook.key, b".".join((message.id.encode(), at.encode(), body)), "sha256"
        )
        headers = {
            "content-type": "application/json",
            "user-agent": "agent-egress-guard",
            "webhook-id": message.id,
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
        }
        try:
            async with (
                asyncio.timeout(ATTEMPT_SECONDS),
                client.stream("POST", hook.url, content=body, headers=headers) as reply,
            ):
                # The body of the response is not read: it may never end.
                return "" if reply.is_success else f"status {reply.status_code}"
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            return type(error).__name__

    def _given_up(self, hook: Hook, message: Message, why: str) -> None:
        self._metrics.webhooks.labels("given_up").inc()
        fields: dict[str, Any] = {"hook": hook.name, "message": message.kind, "why": why[:200]}
        try:
            self._audit.event(EVENT, {**fields, "outcome": "given up"})
        except AuditError:
            return  # The pages say that the log cannot be written.


class PendingNotices:
    """Messages about requests and break-glasses that are new since the last call.

    Args:
        place: the URL of the console.
        now: seconds since the epoch.
    """

    def __init__(self, place: str, now: Callable[[], float]) -> None:
        self._place = place
        self._now = now
        self._seen: set[str] = set()

    def of(
        self, groups: Sequence[Sequence[ApprovalRequest]], standing: PrincipalStatuses
    ) -> list[Message]:
        """Return the new messages.

        Args:
            groups: requests that wait, like ones together.
            standing: who is paused, and which break-glasses there are.
        """
        asked = [self._asked(group) for group in groups]
        others = [self._paused(tenant, one) for tenant, one in standing.pauses]
        others += [self._glass("wanted", tenant, one) for tenant, one in standing.asked]
        others += [self._glass("open", tenant, one) for tenant, one in standing.open]
        seen, self._seen = self._seen, {one.id for one in (*asked, *others)}
        asked = [one for one in asked if one.id not in seen]
        if len(asked) > AT_ONCE:
            text = f"{len(asked)} different requests wait for an answer"
            ends = self._now(), max(one.expires for one in asked)
            many = ("many", *(one.id for one in asked))
            asked = [self._message(many, "approval_waiting", text, ends, requests=len(asked))]
        return [*asked, *(one for one in others if one.id not in seen)]

    def _message(
        self,
        name: tuple[str, ...],
        kind: str,
        text: str,
        times: tuple[float, float],
        path: str = "",
        **data: Any,
    ) -> Message:
        """Return a message about a page below the approvals.

        Args:
            name: parts that make its id.
            kind: its kind, without the prefix.
            text: text for people.
            times: its time and its end.
            path: path below the page, with a slash.
            data: further data for programs.
        """
        digest = hashlib.sha256(json.dumps(name).encode()).hexdigest()
        link = f"{self._place}/approvals{path}"
        return Message(f"msg_{digest[:32]}", f"guard.{kind}", text, link, *times, data)

    def _asked(self, group: Sequence[ApprovalRequest]) -> Message:
        first, shown = group[0], redacted(group)
        people = " Two people have to approve it." if first.people > 1 else ""
        return self._message(
            ("asked", *(call.decision for one in group for call in one.calls)),
            "approval_waiting",
            shown.text() + people,
            (first.at, first.expires),
            f"/{quote(first.tenant, safe='')}/{quote(first.decision, safe='')}",
            tenant=first.tenant,
            principal=first.principal,
            decision_id=first.decision,
            tools=[call.tool for call in first.calls],
            question={
                "sentence": shown.sentence,
                "reason": shown.reason,
                "choices": [one.answer.value for one in shown.choices],
            },
            requests=len(group),
            people=first.people,
        )

    def _paused(self, tenant: str, pause: Pause) -> Message:
        who = plain(pause.principal) or "(nobody proven)"
        return self._message(
            ("paused", tenant, pause.principal, str(pause.at)),
            "principal_paused",
            f"{who} asked for {pause.asks} different calls and is paused",
            (pause.at, pause.until),
            tenant=tenant,
            principal=pause.principal,
        )

    def _glass(self, word: str, tenant: str, glass: BreakGlass) -> Message:
        about = f"tool {plain(glass.tool)} of " if glass.tool else ""
        who = f"{glass.first} and {glass.second}" if glass.second else glass.first
        return self._message(
            ("glass", word, tenant, glass.id),
            f"break_glass_{word}",
            f"a break-glass is {word} for {about}{plain(glass.principal)}: {plain(who)}, "
            f"“{plain(glass.why)}”",
            (glass.at, glass.until or self._now() + 900),
            tenant=tenant,
            principal=glass.principal,
            seconds=glass.seconds,
        )


def shaped(shape: Shape, message: Message) -> dict[str, Any]:
    """Return a message in the format of a service; all text is shown as text."""
    match shape:
        case Shape.SLACK:
            # `text` is marked up: these three are all that has to be escaped (Slack, formatting).
            escaped = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            block = {"type": "plain_text", "text": message.text[:2900], "emoji": False}
            opening = {"type": "plain_text", "text": "Look closer"}
            button = {"type": "button", "text": opening, "url": message.link}
            return {
                "text": escaped,
                "blocks": [
                    {"type": "section", "text": block},
                    {"type": "actions", "elements": [button]},
                ],
            }
        case Shape.JSON | Shape.DESKTOP:
            return {
                "type": message.kind,
                "timestamp": message.at,
                "data": {**message.data, "text": message.text, "link": message.link},
            }


def desktop_command(message: Message, *, is_mac: bool) -> list[str]:
    """Return the words of the command that shows a message; text is an argument, not a program."""
    if is_mac:
        show = "display notification (item 2 of argv) with title (item 1 of argv)"
        lines = [word for line in ("on run argv", show, "end run") for word in ("-e", line)]
        return ["osascript", *lines, TITLE, f"{message.text} {message.link}"]
    # The body of a notification may have markup.
    return ["notify-send", "--", TITLE, escape(f"{message.text} {message.link}", quote=False)]


async def _shown(message: Message) -> str:
    """Show a message on the desktop; return the error."""
    words, silent = desktop_command(message, is_mac=sys.platform == "darwin"), subprocess.DEVNULL
    try:
        started = await asyncio.create_subprocess_exec(
            *words, stdin=silent, stdout=silent, stderr=silent, env=inherited()
        )
        code = await asyncio.wait_for(started.wait(), ATTEMPT_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        return type(error).__name__
    return f"exit code {code}" if code else ""


def plain(text: str) -> str:
    """Return an agent's text on one line, shortened, without invisible characters."""
    seen = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return seen if len(seen) <= TEXT else f"{seen[:TEXT]}…"
