"""Requests that are asked about and held open until a person answers.

A request is held as the very bytes that were judged.  A yes leaves a grant in the store, sealed and
bound as for a call that comes again (:func:`guard.provenance.approvals.bound`); the request is then
judged anew from the beginning, takes the grant, and goes out.  Nothing else releases it: the event
that wakes it does not authorize it.  A change of policy, an answer that was given twice or a grant
that somebody else has used up end in a new judgement as well.  If the process that holds it dies,
the request is not released.

Calls in a model's answer and messages of a WebSocket are held likewise, where they are judged
(:meth:`Holding.hold_call`).

While anything is held, the store is asked for new answers in one command per tenant and
:data:`POLL_SECONDS`, and nothing else is done again and again, however many requests wait.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from guard.core.errors import MessageError, StateError
from guard.core.metrics import ERRORS, HELD, HELD_CALLS, Metrics
from guard.core.policy import Action, AskSettings, Policy, Reason, Verdict
from guard.pipeline.admission import one_less
from guard.pipeline.exchange import SIGN_SECONDS, AskedRequest, Exchange, HeldCall, UnparsedExchange
from guard.pipeline.identity import Credentials, identify
from guard.protocols.framing.sse import message_event
from guard.protocols.http.message import HttpReply, HttpRequest
from guard.protocols.mcp.elicitation import OWN_ID, OWN_STATE, retried_request, settled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from guard.core.calls import TracedCall
    from guard.core.model import Identity
    from guard.core.ports import AnswerFeed, AuditLog, Fate
    from guard.pipeline.elicitation import ElicitationState, Elicitor
    from guard.protocols.base import ProtocolModule
    from guard.protocols.messages import Message


POLL_SECONDS: Final = 0.05
SPREAD: Final = 1024
HELD_LIMIT: Final = 2048
HELD_EACH: Final = 1024
HELD_BYTES: Final = 64 * 1024 * 1024
"""Requests that one process holds, those of one principal, and the bytes of all their bodies; what
exceeds one of them is refused at once, as without ``hold``."""
JUDGEMENTS: Final = 8
"""Times one request is judged anew at most."""
EVENT: Final = "guard.held"
COMMENT: Final = b": the egress guard waits for an approval\n\n"
_PREFER: Final = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?([0-9]{1,6})\"?(?:$|[,;\s])", re.IGNORECASE)
"""``Prefer: wait=SECONDS`` (RFC 7240, section 4.3)."""
_FATES: Final = {"denied": "denied", "gone": ""}
"""Result for a held request by the fate of the request for its approval."""
DENIED: Final = Reason(
    "approval_denied", "", Action.BLOCK, "a person denied it", remedy="do not retry the same call"
)
FAILED: Final = Reason(
    "guard_error", "", Action.BLOCK, "it could not be judged anew", remedy="retry later"
)
UNANSWERED: Final = Reason(
    "approval_expired",
    "",
    Action.BLOCK,
    "nobody answered in time",
    remedy="do not repeat the call; go on without it, and tell the user",
)
_REWORDED: Final = {"denied": DENIED, "failed": FAILED, "unanswered": UNANSWERED}
"""Reasons of the refusal of a held request, by its fate."""


Judge: TypeAlias = (
    "Callable[[HttpRequest], Awaitable[Exchange | UnparsedExchange | HttpReply | AskedRequest]]"
)
"""Judges a request anew."""


class HeldRequest:
    """One request that waits.  Whoever has it keeps its client waiting and closes it in the end.

    Args:
        holding: where it is counted.
        asked: the request.
        judge: judges it anew, as if it had come again.
        seconds: how long it waits at most.
        signs: whether its client can be told meanwhile that it waits.
        elicitor: asks the person at its client, where it can be told anything.
    """

    def __init__(
        self,
        holding: Holding,
        asked: AskedRequest,
        judge: Judge,
        seconds: float,
        *,
        signs: bool,
        elicitor: Elicitor | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.asked = asked
        self._holding = holding
        self._judge = judge
        self._since = loop.time()
        self._until = self._since + seconds
        self.signs = signs
        """True if its client can be told meanwhile that it waits."""
        self._elicitor = elicitor if signs else None
        self._question = ""
        self._last: list[bytes] = []
        self._signs_sent = 0
        self._next_sign = self._since
        self._fate = "left"
        self._is_closed = False
        self._news: asyncio.Future[None] | None = None
        self._task = loop.create_task(self._settled())
        self._task.add_done_callback(self._wake)

    async def waiting(self, seconds: float = SIGN_SECONDS) -> list[bytes] | None:
        """Wait a while, until the client is to be told something at the latest.

        Args:
            seconds: at most.

        Returns:
            messages for the client, perhaps none, where the request still waits; None where it is
            settled.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        until = min(now + seconds, max(now, self._next_sign))
        if until > now and not self._task.done():
            # Cheaper than asyncio.wait, and what a thousand requests do again and again.
            self._news = loop.create_future()
            timer = loop.call_at(until, self._wake)
            try:
                await self._news
            finally:
                timer.cancel()
        if self._task.done():
            last, self._last = self._last, []
            return last or None
        if until < self._next_sign:
            return []
        spread = hash(self.asked.decisions[0]) % SPREAD / SPREAD / 5
        self._next_sign = until + SIGN_SECONDS * (1 - spread)
        self._signs_sent += 1
        messages = list(self.asked.protocol.still_waits(self.asked.message, self._signs_sent))
        if self._signs_sent == 1 and self._elicitor is not None:
            messages += await self._question_for(self._elicitor)
        return messages

    def _wake(self, _: object = None) -> None:
        """Wake the task that waits."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _question_for(self, elicitor: Elicitor) -> list[bytes]:
        """Return the message that asks the person at the client, where the policy says so."""
        question = await elicitor.question(self.asked)
        if question is None or self._is_closed:
            return []
        cancelled = partial(self._holding.wake, self.asked.decisions[0], "cancelled")
        identifier, message = elicitor.ask(self.asked, question, cancelled)
        self._question = identifier
        self._last = [settled(identifier, question)]
        return [message]

    def outcome(self) -> Exchange | UnparsedExchange | HttpReply:
        """Return its outcome: an exchange to forward, or the reply."""
        if not self._task.done() or self._task.cancelled() or self._task.exception() is not None:
            return self.asked.reply
        return self._task.result()

    def close(self) -> None:
        """Note that nobody waits any more: what was not released never is.  Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._task.cancel()
        if self._elicitor is not None:
            self._elicitor.forget(self._question)
        waited = asyncio.get_running_loop().time() - self._since
        self._holding.ended(self.asked, self._fate, waited)

    async def _settled(self) -> Exchange | UnparsedExchange | HttpReply:
        """Wait for an answer and judge the request anew, as often as it takes."""
        outcome: Exchange | UnparsedExchange | HttpReply | AskedRequest
        self._fate, outcome = await self._holding.settled(self.asked, self._until, self._again)
        if isinstance(outcome, AskedRequest):
            reason = _REWORDED.get(self._fate)
            return outcome.reply if reason is None else outcome.reworded(reason)
        self._fate = "released" if isinstance(outcome, Exchange) else "refused"
        return outcome

    async def _again(
        self, asked: AskedRequest
    ) -> Exchange | UnparsedExchange | HttpReply | AskedRequest:
        asked.request.forget_proof()
        return await self._judge(asked.request)


class Holding:
    """The requests that one process holds open.

    Args:
        feed: tells of answers.
        policy: returns the policy that decides on a principal's calls.
        audit: gets a line for each request that was held.
        metrics: counts them.
    """

    def __init__(
        self,
        feed: AnswerFeed,
        policy: Callable[[Identity], Policy | None],
        audit: AuditLog,
        metrics: Metrics,
    ) -> None:
        self._feed = feed
        self._policy = policy
        self._audit = audit
        self._metrics = metrics
        self._open: dict[int, AskedRequest | HeldCall] = {}
        self._each: Counter[str] = Counter()
        self._bytes = 0
        self._waiting: dict[str, tuple[asyncio.Future[str], AskedRequest | HeldCall]] = {}
        """By decision id: what becomes of a request, empty where it is to be judged anew."""
        self._tenants: Counter[str] = Counter()
        """Tenants of the waiting requests and calls."""
        self._marks: dict[str, str] = {}
        self._listening: asyncio.Task[None] | None = None
        self._is_over = False

    @property
    def held(self) -> int:
        """Number of held requests."""
        return len(self._open)

    def hold(
        self,
        asked: AskedRequest,
        judge: Judge,
        elicitor: Elicitor | None = None,
    ) -> HeldRequest | None:
        """Hold a request open; None where the policy does not say so, or there is no room."""
        seconds = self.hold_seconds(asked)
        if not seconds or not self._admitted(asked):
            return None
        signs = reads_signs(asked)
        return HeldRequest(self, asked, judge, seconds, signs=signs, elicitor=elicitor)

    def _admitted(self, asked: AskedRequest | HeldCall) -> bool:
        """Count what is held from now on; False where there is no room for it."""
        principal, size = asked.identity.principal, asked.size
        if (
            len(self._open) >= HELD_LIMIT
            or self._each[principal] >= HELD_EACH
            or self._bytes + size > HELD_BYTES
        ):
            self._metrics.count(HELD, "no_room")
            return False
        self._open[id(asked)] = asked
        self._each[principal] += 1
        self._bytes += size
        self._metrics.set(HELD_CALLS, len(self._open))
        return True

    def hold_seconds(self, asked: AskedRequest) -> int:
        """Return for how many seconds a request would be held open; 0: not at all."""
        if reads_signs(asked):
            return self.longest(asked.identity)
        return self.silent(asked.identity, asked.request)

    def longest(self, identity: Identity) -> int:
        """Return the hold time of a client that can be told that it waits."""
        policy = self._policy(identity)
        return 0 if policy is None or self._is_over else policy.ask.hold

    def silent(self, identity: Identity, request: HttpRequest) -> int:
        """Return the hold time of a client that is told nothing while it waits."""
        policy = self._policy(identity)
        if policy is None or not policy.ask.hold or self._is_over:
            return 0
        return _silent_hold_seconds(request, policy.ask)

    async def hold_call(
        self,
        judged: tuple[TracedCall, Verdict],
        size: int,
        seconds: int,
        judge: Callable[[], Awaitable[tuple[TracedCall, Verdict]]],
    ) -> tuple[TracedCall, Verdict]:
        """Hold a call that is not a request of its own; return how it was judged in the end.

        Args:
            judged: the call and its verdict; any but an ask is returned as it is.
            size: bytes that are kept for it.
            seconds: how long it waits at most.
            judge: judges it anew, as a call with an id of its own.
        """

        async def again(_: HeldCall) -> tuple[TracedCall, Verdict] | HeldCall:
            nonlocal judged
            judged = await judge()
            return held_call(judged, size) or judged

        asked = held_call(judged, size)
        if asked is None or seconds <= 0 or not self._admitted(asked):
            return judged
        loop = asyncio.get_running_loop()
        since, fate = loop.time(), "left"
        try:
            fate, found = await self.settled(asked, since + seconds, again)
            if not isinstance(found, HeldCall):
                fate = "released" if judged[1].enforced.forwards else "refused"
            elif fate in _REWORDED:
                return judged[0], judged[1].blocked(_REWORDED[fate])
            return judged
        finally:
            self.ended(asked, fate, loop.time() - since)

    async def settled(
        self,
        asked: AskedRequest | HeldCall,
        until: float,
        judge: Callable[[Any], Awaitable[Any]],
    ) -> tuple[str, Any]:
        """Wait for an answer and judge anew, as often as it takes.

        Args:
            asked: what is held.
            until: on the clock of the event loop.
            judge: judges it anew.

        Returns:
            its fate, empty if the new judgement is the outcome; and that outcome, or
            what is still asked: ``denied``, ``expired``, ``unanswered``, ``stopped``, ``refused``
            or ``failed``.  A request for approval that ends unanswered is not asked again.
        """
        now = asyncio.get_running_loop().time
        for _ in range(JUDGEMENTS):
            ends = now() + self._approval_seconds(asked)
            try:
                fate = await self.answered(asked, min(until, ends))
                over = ends <= until and now() >= ends
                if fate:
                    return "unanswered" if over and fate == "expired" else fate, asked
                outcome = await judge(asked)
            except Exception:  # noqa: BLE001  (what was not judged anew is not released)
                self._metrics.count(ERRORS, "hook")
                return "failed", asked
            if not isinstance(outcome, AskedRequest | HeldCall):
                return "", outcome
            asked = outcome
            if over:
                return "unanswered", asked
        return "refused", asked

    def _approval_seconds(self, asked: AskedRequest | HeldCall) -> int:
        """Return how long a request for approval waits; 0 if no policy is in force."""
        policy = self._policy(asked.identity)
        return policy.limits.approval if policy is not None else 0

    def ended(self, asked: AskedRequest | HeldCall, outcome: str, seconds: float) -> None:
        """Note that a request is not held any more."""
        if self._open.pop(id(asked), None) is None:
            return
        principal = asked.identity.principal
        one_less(self._each, principal)
        self._bytes -= asked.size
        self._metrics.set(HELD_CALLS, len(self._open))
        self._metrics.count(HELD, outcome)
        try:
            fields = {"decision_id": asked.decisions[0], "outcome": outcome, "principal": principal}
            server, waited = asked.server, round(seconds, 3)
            self._audit.event(EVENT, {**fields, "server": server, "waited": waited})
        except Exception:  # noqa: BLE001  (its place is to be given back)
            # The decision itself is on record, or was refused for it.
            self._metrics.count(ERRORS, "audit")

    def cancelled(self, identity: Identity, server: str, correlations: Collection[str]) -> None:
        """Give up requests that their client says it waits for no longer, by their ids."""
        for asked in self._open.values():
            if not isinstance(asked, AskedRequest):
                continue
            mine = asked.identity == identity and asked.server == server
            if mine and any(one.correlation in correlations for one in asked.message.calls):
                self.wake(asked.decisions[0], "left")

    async def fate(self, tenant: str, decision: str) -> Fate:
        """Return the fate of a request for approval.

        Raises:
            MessageError: it cannot be known now.
        """
        try:
            return await self._feed.fate(tenant, decision)
        except StateError as error:
            raise MessageError("guard_error", "the store did not answer", status=503) from error

    def stop(self) -> None:
        """Refuse what is held: the process ends."""
        self._is_over = True
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_result("stopped")

    async def answered(self, asked: AskedRequest | HeldCall, until: float) -> str:
        """Wait until a request is answered, its policy is no longer in force, or its time is up.

        Args:
            asked: the request.
            until: on the clock of the event loop.

        Returns:
            empty where it is to be judged anew; ``denied``, ``expired`` or ``stopped``.
        """
        tenant, first = asked.identity.tenant, asked.decisions[0]
        if asked.policy != self.policy_digest(asked.identity):
            return ""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        for decision in asked.decisions:
            self._waiting[decision] = future, asked
        self._tenants[tenant] += 1
        try:
            try:
                async with asyncio.timeout_at(until):
                    await self._listen(tenant)
                    # An answer that came before anybody listened.
                    if (fate := await self._feed.fate(tenant, first)) != "open":
                        return _FATES[fate]
            except (StateError, TimeoutError):
                # Whoever asks for answers looks at every request of the tenant once it can.
                self._marks.pop(tenant, None)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    return await future
            with suppress(StateError):
                # An answer that nobody told of.
                fate = await self._feed.fate(tenant, first)
                return _FATES.get(fate, "expired")
            return "expired"
        finally:
            for decision in asked.decisions:
                self._waiting.pop(decision, None)
            one_less(self._tenants, tenant)

    async def _listen(self, tenant: str) -> None:
        """Ask for answers from now on, until nothing is held any more."""
        if self._listening is None or self._listening.done():
            self._marks.clear()
            self._listening = asyncio.get_running_loop().create_task(self._asking())
        if tenant not in self._marks:
            mark, _ = await self._feed.since(tenant, "")
            # Of two that asked, the earlier mark misses nothing.
            self._marks.setdefault(tenant, mark)

    async def _asking(self) -> None:
        while self._waiting:
            await asyncio.sleep(POLL_SECONDS)
            for tenant in tuple(self._tenants):
                try:
                    mark = self._marks.get(tenant) or await self._begun(tenant)
                    self._marks[tenant], answers = await self._feed.since(tenant, mark)
                except Exception:  # noqa: BLE001  (those that wait are still to be told)
                    # Nothing is released meanwhile; every call sees it by itself.
                    self._metrics.count(ERRORS, "state")
                    continue
                for decision, granted in answers:
                    self.wake(decision, "" if granted else "denied")

    async def _begun(self, tenant: str) -> str:
        """Return the mark from which on answers are asked for; wake whoever has one already."""
        mark, _ = await self._feed.since(tenant, "")
        for decision, (_, asked) in list(self._waiting.items()):
            if asked.identity.tenant == tenant:
                fate = await self._feed.fate(tenant, decision)
                if fate != "open":
                    self.wake(decision, _FATES[fate])
        return mark

    def look_at_policy(self) -> None:
        """Wake what was asked under another policy: no answer to it releases anything."""
        for decision, (_, asked) in list(self._waiting.items()):
            if asked.policy != self.policy_digest(asked.identity):
                self.wake(decision, "")

    def policy_digest(self, identity: Identity) -> str:
        """Return the digest of the policy that decides on a principal's calls now."""
        policy = self._policy(identity)
        return policy.digest if policy is not None else ""

    def wake(self, decision: str, outcome: str) -> None:
        """End the wait for a decision; an empty outcome has its request judged anew."""
        future, _ = self._waiting.get(decision, (None, None))
        if future is not None and not future.done():
            future.set_result(outcome)


def held_call(judged: tuple[TracedCall, Verdict], size: int) -> HeldCall | None:
    """Return what is asked about a call, None where its verdict asks nobody."""
    traced, verdict = judged
    if verdict.action is not Action.ASK or verdict.enforced.forwards:
        return None
    call = traced.classified.call
    return HeldCall(call.identity, call.server, verdict.policy, (call.id,), size)


def reads_signs(asked: AskedRequest) -> bool:
    """Return whether the client of a request can be told that it waits."""
    return asked.reply.stream is not None or asked.protocol.reads_events(asked.request)


def _silent_hold_seconds(request: HttpRequest, ask: AskSettings) -> int:
    """Return the hold time of a client that can be told nothing meanwhile."""
    preferences = ",".join(value for name, value in request.headers if name == "prefer")
    wait = _PREFER.search(preferences)
    return min(ask.hold, int(wait[1]) if wait is not None else ask.quiet)


def in_events(messages: Sequence[bytes]) -> bytes:
    """Return messages as events of a stream; without one, a comment that every reader skips."""
    return b"".join(map(message_event, messages)) or COMMENT


_UNANSWERED: Final = Reason("approval_required", "", Action.ASK, "a person has yet to approve it")


class ApprovalFlow:
    """Asks a person about a request, or holds it open, if its verdict is an ask.

    Args:
        holding: holds requests open.
        elicitor: asks people at MCP clients.
        judge: judges a request.
        protocol_of: returns the protocol of a request.
        credentials: of the principals.
    """

    def __init__(
        self,
        holding: Holding,
        elicitor: Elicitor,
        judge: Judge,
        protocol_of: Callable[[HttpRequest], ProtocolModule],
        credentials: Credentials,
    ) -> None:
        self._holding = holding
        self._elicitor = elicitor
        self._judge = judge
        self._protocol_of = protocol_of
        self._credentials = credentials

    async def judge(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | HeldRequest:
        """Judge a request; elicit an answer or hold the request open if the policy says so.

        Raises:
            MessageError: it answers a question that was not asked, or cannot be read one way only.
        """
        if self._elicitor.asks and request.method == "POST":
            answered = await self._answered(request)
            if answered is not None:
                return answered
        return await self._settled(request, self._judge)

    def note(self, message: Message, exchange: Exchange) -> None:
        """Note the capabilities that a client declares, and the requests that it cancels."""
        if message.plain and self._elicitor.asks:
            self._elicitor.note(exchange, message)
        if self._holding.held and (cancelled := exchange.protocol.cancels(message)):
            self._holding.cancelled(exchange.identity, exchange.server, cancelled)

    async def _settled(
        self, request: HttpRequest, judge: Judge
    ) -> Exchange | UnparsedExchange | HttpReply | HeldRequest:
        """Judge a request; ask the person at the client, hold the request open, or refuse it."""
        asked = await judge(request)
        if not isinstance(asked, AskedRequest):
            return asked
        elicitor = self._elicitor if self._elicitor.asks else None
        if elicitor is not None:
            reply = await elicitor.instead(asked, holds=self._holding.hold_seconds(asked) > 0)
            if reply is not None:
                return reply
        return self._holding.hold(asked, judge, elicitor) or asked.reply

    async def _answered(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | HeldRequest | None:
        """Take an answer to a question of the guard; return None for any other request.

        Raises:
            MessageError: the question was not asked, or the answer cannot be read one way only.
        """
        principal = self._credentials.claimed(request)
        if OWN_ID in request.body and await self._elicitor.take(request, principal):
            return HttpReply(202, "text/plain", b"")
        retried = retried_request(request) if OWN_STATE in request.body else None
        if retried is None:
            return None
        state = self._elicitor.opened(retried, principal)
        restored = retried.restored(state.state, state.responses)
        is_to_come = await self._elicitor.answered(state, retried.answer)
        fate = await self._holding.fate(state.tenant, state.decision)
        if fate == "gone":
            return await self._settled(restored, self._judge_restored)
        asked = self._still_asked(restored, state)
        if fate == "denied":
            return asked.reworded(DENIED)
        # The person may have been sent to a page, and not have answered on it yet.
        held = self._holding.hold(asked, self._judge_restored) if is_to_come else None
        return held or asked.reply

    def _still_asked(self, request: HttpRequest, state: ElicitationState) -> AskedRequest:
        """Return a request that waits under an earlier decision, without a new judgement.

        Raises:
            MessageError: it cannot be read one way only.
        """
        protocol = self._protocol_of(request)
        message = protocol.parse(request)
        identity = identify(request, message, self._credentials)

        def worded(reason: Reason) -> HttpReply:
            error = MessageError(reason.code, reason.detail)
            return protocol.unreadable(error, state.decision, request)

        return AskedRequest(
            request=request,
            reply=worded(_UNANSWERED),
            protocol=protocol,
            message=message,
            identity=identity,
            policy=self._holding.policy_digest(identity),
            decisions=(state.decision,),
            rules=frozenset(),
            reworded=worded,
        )

    async def _judge_restored(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | AskedRequest:
        """Judge a restored request; it is forwarded in place of the one that the client sent."""
        outcome = await self._judge(request)
        if isinstance(outcome, Exchange) and outcome.rewritten is None:
            outcome.rewritten = request
        return outcome
