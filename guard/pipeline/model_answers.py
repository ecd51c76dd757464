"""A model's answer, judged call by call before its bytes are released, and the results of them.

The model asks for a call in its answer, the agent runs it by itself, and the result comes back in
the history of a later request.  So a call is authorised at the moment its bytes would be
released, and completed when a request first reports its result.  Where the policy holds what it
asks about (``ask: {hold}``), the bytes wait for a person's answer: of a stream what came before
them is released meanwhile, and its client is told that it goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from guard.core.calls import ClassifiedCall, ToolResult, TracedCall, untraced
from guard.core.errors import Fate, MessageError
from guard.core.model import Role, ToolCall
from guard.pipeline.in_flight import text_size
from guard.pipeline.outcome import JudgeRequest
from guard.protocols.llm.model_answers import APPROVAL, Held, Proposal
from guard.protocols.refusals import Refusal, observation, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.policy import Verdict
    from guard.pipeline.exchange import Exchange
    from guard.pipeline.handler_parts import HandlerParts
    from guard.protocols.messages import ParsedCall, ReportedResult

REPORTED_LIMIT: Final = 100_000
"""Reported results that are remembered: a history is sent again and again."""
_REPORTED: Final = "reported"
"""In the place of a server: what a model was told already."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class ModelAnswerHandler:
    """Judges the calls in answers and completes them from later requests."""

    def __init__(self, parts: HandlerParts) -> None:
        self._parts = parts
        self._reported: OrderedDict[bytes, Refusal | None] = OrderedDict()
        """Reported calls, by digest, and the refusal of each that is withheld."""

    def hold_seconds(self, exchange: Exchange) -> int:
        """Return for how many seconds calls in a streamed answer are held open, 0: not at all."""
        return 0 if self._parts.holding is None else self._parts.holding.longest(exchange.identity)

    async def settle(self, exchange: Exchange, held: Held, hold_seconds: int) -> bytes:
        """Return the bytes to release for a held part, judged on the state of this moment.

        Args:
            exchange: whose answer it is part of.
            held: the part.
            hold_seconds: seconds for which a call that is asked about waits for a person, at most.
        """
        if not held.calls:
            return held.settle(())
        notices = await asyncio.gather(
            *(self._notice(exchange, call, hold_seconds) for call in held.calls)
        )
        return held.settle(notices)

    async def _notice(
        self, exchange: Exchange, proposed: Proposal, hold_seconds: int
    ) -> str | None:
        """Return the words in the place of a refused call, None where it goes out."""
        if isinstance(proposed, MessageError):
            decision_id = self._parts.failures.record(
                proposed, exchange.protocol.name, exchange.place
            )
            if self._parts.failures.passes:
                return None
            return (
                "A tool call of this answer was refused by the egress guard: it cannot be read "
                f"one way only ({proposed.code}). Decision id: {decision_id}."
            )
        judged = await self._judged(exchange, proposed)
        if self._parts.holding is not None and hold_seconds:
            size = len(proposed.tool) + len(json.dumps(proposed.arguments))
            again = partial(self._judged, exchange, proposed)
            judged = await self._parts.holding.hold_call(judged, size, hold_seconds, again)
        classified, verdict = judged
        if verdict.enforced.forwards:
            if proposed.correlation is not None:
                if proposed.correlation.startswith(APPROVAL):
                    identity = exchange.identity
                    mark = self._parts.issued.question(identity.principal, proposed.correlation)
                    self._parts.issued.add(exchange.upstream, mark, identity.tenant)
                key = exchange.model_key(proposed.correlation)
                size = text_size(dict(classified.call.arguments))
                self._parts.in_flight.add(key, classified, size)
                if self._parts.shared is not None:
                    self._parts.shared.keep(exchange.identity.tenant, key, classified)
            return None
        words = sentence(observation(Refusal(classified.call.id, verdict)))
        name = f"`{proposed.tool}`: " if _PLAIN_NAME.fullmatch(proposed.tool) else ""
        return name + words

    async def _judged(self, exchange: Exchange, parsed: ParsedCall) -> tuple[TracedCall, Verdict]:
        [judged] = await self._parts.guard.judge(JudgeRequest([self._call(exchange, parsed)]))
        return judged

    def _call(self, exchange: Exchange, parsed: ParsedCall) -> ToolCall:
        return exchange.call(parsed.tool, parsed.arguments, self._parts.clock.now())

    async def observe_reported(
        self, exchange: Exchange, results: Sequence[ReportedResult]
    ) -> Refusal | None:
        """Observe the results a request reports, each once: a history is sent again and again.

        A result whose call was never seen here counts as one of the tool that the history names;
        what it says is a result all the same, and as untrusted.

        Returns:
            why the request must not go out, where one of them must be withheld from the model.
        """
        observed = await asyncio.gather(*(self._observe(exchange, result) for result in results))
        return next((refusal for refusal in observed if refusal is not None), None)

    async def _observe(self, exchange: Exchange, result: ReportedResult) -> Refusal | None:
        report = [exchange.identity.principal, result.call.correlation, result.content]
        digest = hashlib.sha256(json.dumps(report, sort_keys=True).encode()).digest()
        if digest in self._reported:
            self._reported.move_to_end(digest)
            return self._reported[digest]
        self._reported[digest] = None
        while len(self._reported) > REPORTED_LIMIT:
            self._reported.popitem(last=False)
        key = exchange.model_key(result.call.correlation or "")
        pending = self._parts.in_flight.take(key)
        if self._parts.shared is not None:
            tenant, name = exchange.identity.tenant, f"/{digest.hex()}"
            self._parts.shared.forget(tenant, key)
            if pending is None:
                if await self._parts.shared.said(tenant, _REPORTED, [name]):
                    return None
                held = await self._parts.shared.take(tenant, key)
                pending = None if isinstance(held, str) else held
        classified = pending or untraced(self._classify(self._call(exchange, result.call)))
        at = self._parts.clock.now()
        verdict = await self._parts.guard.observe(
            ToolResult(classified, result.content, at, result.is_error, is_report=True)
        )
        if verdict is not None:
            self._reported[digest] = Refusal(classified.call.id, verdict, fate=Fate.WITHHELD)
        elif self._parts.shared is not None:
            self._parts.shared.say(exchange.identity.tenant, _REPORTED, f"/{digest.hex()}")
        return self._reported.get(digest)

    def _classify(self, call: ToolCall) -> ClassifiedCall:
        policy = self._parts.guard.policy
        if policy is None:
            return ClassifiedCall(call, Role.OTHER)
        return self._parts.guard.calls.classified(policy, call)
