"""A model's answer, judged call by call before its bytes are released, and the results of them.

The model asks for a call in its answer, the agent runs it by itself, and the result comes back in
the history of a later request.  So a call is authorised at the moment its bytes would be
released, and completed when a request first reports its result.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import AuditError, MessageError
from guard.core.model import Role, ToolCall
from guard.core.verdict import Mode
from guard.decision.classification import classify
from guard.decision.decision_ids import new_decision_id
from guard.protocols.refusals import Refusal, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.calls import TracedCall
    from guard.core.model import Identity
    from guard.core.ports import AuditLog, Clock, Metrics
    from guard.decision.guard import Guard
    from guard.protocols.llm.model_answers import Held, Proposal
    from guard.protocols.messages import ParsedCall, ReportedResult

PENDING_LIMIT: Final = 100_000
"""Calls whose results are awaited outside their own exchange; the oldest is forgotten first and
then simply stays *attempted*, which frees nobody."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


TASK: Final = "task"
"""Second-last part of a pending call's key where the last is a task's id."""


class CallsInFlight:
    """Calls that were released and whose results may come back anywhere, by some key."""

    def __init__(self, limit: int = PENDING_LIMIT) -> None:
        self._calls: OrderedDict[tuple[str, ...], TracedCall] = OrderedDict()
        self._limit = limit

    def add(self, key: tuple[str, ...], call: TracedCall) -> None:
        """Remember a call."""
        self._calls[key] = call
        while len(self._calls) > self._limit:
            self._calls.popitem(last=False)

    def take(self, key: tuple[str, ...]) -> TracedCall | None:
        """Return a call and forget it, None where it is not known."""
        return self._calls.pop(key, None)

    def __len__(self) -> int:
        return len(self._calls)


class ParseFailures:
    """Records what could not be read one way only.

    Args:
        guard: says whether the policy only watches.
        audit: gets a line.
        metrics: gets a count.
    """

    def __init__(self, guard: Guard, audit: AuditLog, metrics: Metrics) -> None:
        self._guard = guard
        self._audit = audit
        self._metrics = metrics

    @property
    def passes(self) -> bool:
        """Whether it is recorded and forwarded all the same, as in monitor mode."""
        policy = self._guard.policy
        return policy is not None and policy.mode is Mode.MONITOR

    def record(self, error: MessageError, protocol: str, server: str, decision_id: str) -> None:
        """Write the audit line and count."""
        self._metrics.refusal(error.code)
        fields = {
            "decision_id": decision_id,
            "code": error.code,
            "action": "block",
            "enforced": "allow" if self.passes else "block",
            "protocol": protocol,
            "server": server,
        }
        try:
            self._audit.event("guard.unreadable", fields)
        except AuditError:
            self._metrics.error("audit")
            self._metrics.fail_closed("audit", active=True)


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose answer it is, and how it came."""

    identity: Identity
    protocol: str
    server: str


class ModelAnswerHandler:
    """Judges the calls in answers and completes them from later requests."""

    def __init__(self, guard: Guard, clock: Clock, unread: ParseFailures) -> None:
        self._guard = guard
        self._clock = clock
        self._unread = unread
        self._pending = CallsInFlight()
        self._reported: OrderedDict[bytes, Refusal | None] = OrderedDict()
        """What was reported, by digest, and why it is withheld, if it is."""

    async def settle(self, origin: Origin, held: Held) -> bytes:
        """Return the bytes to release for a held part, judged on the state of this moment."""
        if not held.calls:
            return held.settle(())
        notices = await asyncio.gather(*(self._notice(origin, call) for call in held.calls))
        return held.settle(notices)

    async def _notice(self, origin: Origin, proposed: Proposal) -> str | None:
        """Return the words in the place of a refused call, None where it goes out."""
        if isinstance(proposed, MessageError):
            decision_id = new_decision_id()
            self._unread.record(proposed, origin.protocol, origin.server, decision_id)
            if self._unread.passes:
                return None
            return (
                "A tool call of this answer was refused by the egress guard: it cannot be read "
                f"one way only ({proposed.code}). Decision id: {decision_id}."
            )
        [(classified, verdict)] = await self._guard.authorize([self._call(origin, proposed)])
        if verdict.enforced.forwards:
            if proposed.correlation is not None:
                key = (origin.identity.principal, proposed.correlation)
                self._pending.add(key, classified)
            return None
        words = sentence(Refusal(classified.call.id, verdict))
        name = f"`{proposed.tool}`: " if _PLAIN_NAME.fullmatch(proposed.tool) else ""
        return name + words

    def _call(self, origin: Origin, parsed: ParsedCall) -> ToolCall:
        return ToolCall(
            id=new_decision_id(),
            identity=origin.identity,
            tool=parsed.tool,
            arguments=parsed.arguments,
            protocol=origin.protocol,
            at=self._clock.now(),
            server=origin.server,
        )

    async def observe_reported(
        self, origin: Origin, results: Sequence[ReportedResult]
    ) -> Refusal | None:
        """Observe the results a request reports, each once: a history is sent again and again.

        A result whose call was never seen here counts as one of the tool that the history names;
        what it says is a result all the same, and as untrusted.

        Returns:
            why the request must not go out, where one of them must be withheld from the model.
        """
        told = await asyncio.gather(*(self._observe(origin, result) for result in results))
        return next((refusal for refusal in told if refusal is not None), None)

    async def _observe(self, origin: Origin, result: ReportedResult) -> Refusal | None:
        principal = origin.identity.principal
        said = [principal, result.call.correlation, result.content]
        digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()
        if digest in self._reported:
            self._reported.move_to_end(digest)
            return self._reported[digest]
        self._reported[digest] = None
        while len(self._reported) > PENDING_LIMIT:
            self._reported.popitem(last=False)
        pending = self._pending.take((principal, result.call.correlation or ""))
        classified = pending or untraced(self._classify(self._call(origin, result.call)))
        at = self._clock.now()
        verdict = await self._guard.observe(
            ToolResult(classified, result.content, at, result.is_error)
        )
        if verdict is not None:
            self._reported[digest] = Refusal(classified.call.id, verdict)
        return self._reported.get(digest)

    def _classify(self, call: ToolCall) -> ClassifiedCall:
        policy = self._guard.policy
        if policy is None:
            return ClassifiedCall(call, Role.OTHER)
        return classify(policy, call)
