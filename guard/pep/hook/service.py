"""Judgement of the hooks of coding agents, in the running guard."""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from guard.core.calls import ToolResult, TracedCall
from guard.core.errors import GuardError
from guard.core.model import Identity, Json, ToolCall
from guard.core.policy import Action, Verdict
from guard.pep.hook.payloads import (
    UPSTREAM,
    Client,
    Decision,
    Hook,
    Kind,
    answer_to_call,
    answer_to_result,
    given_arguments,
    read_hook,
)
from guard.pipeline.elicitation import ElicitationState, Elicitor
from guard.pipeline.identity import identify
from guard.pipeline.outcome import JudgeRequest
from guard.protocols.http.message import HttpRequest
from guard.protocols.mcp.elicitation import ACCEPT, FORM
from guard.protocols.messages import Message
from guard.protocols.refusals import Refusal, observation, sentence
from guard.provenance.folders import offered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.pipeline.handlers import Enforcement

PROTOCOL: Final = "hook"
LIMIT: Final = 4096
"""Calls without a result, and client processes, that are remembered."""
WITHHELD: Final = (
    "The result of this call was withheld: the egress guard has no record of the call. Start the "
    "guard before the agent, and run the call again."
)


@dataclass(frozen=True, slots=True)
class Running:
    """A call that the client may run."""

    call: TracedCall
    decision: str = ""
    """Id of the request for approval that the client's dialog answers; empty for none."""


class HookService:
    """Judges calls, labels results and takes prompts that hooks report.

    The MCP server of a client counts as guarded while a `guard stdio` of that name, started by the
    same process, is connected; the wrapper judges its calls, in the session of the hooks.

    Args:
        enforcement: judges calls and observes results.
        workers: number of workers; a call and its result need the same one.
    """

    def __init__(self, enforcement: Enforcement, workers: int = 1) -> None:
        self._enforcement = enforcement
        self._workers = workers
        self._running: OrderedDict[tuple[str, str], Running] = OrderedDict()
        self._sessions: OrderedDict[str, str] = OrderedDict()
        self.wrapped: set[tuple[str, str]] = set()
        """Client process and server name of each connected wrapper."""

    def session_of(self, process: str) -> str:
        """Return the session that the hooks of a client process report, empty for none."""
        return self._sessions.get(process, "")

    async def line(self, question: Mapping[str, Any]) -> bytes:
        """Return a line of exit code and output of a hook; with code 2 its client runs nothing."""
        try:
            if self._workers > 1:
                raise GuardError("hooks need a guard with one worker; use --workers 1")
            payload = json.loads(question["payload"])
            hook = read_hook(Client(question["client"]), payload, str(question["project"]))
            identity = self._identity(hook, str(question.get("secret") or ""))
            process = str(question.get("process") or "")
            if process.isdecimal():
                _keep(self._sessions, process, identity.session)
            text = json.dumps(await self._output(hook, identity, process))
        except Exception as error:  # noqa: BLE001  (an error on the way of a call refuses it)
            known = isinstance(error, GuardError)
            text = f"{error}" if known else type(error).__name__
            return f"2 {' '.join(text.split())}\n".encode()
        return f"0 {text}\n".encode()

    async def _output(self, hook: Hook, identity: Identity, process: str) -> Mapping[str, Json]:
        if hook.kind is Kind.PROMPT:
            now = self._enforcement.now()
            await self._enforcement.guard.notes.prompt(identity, hook.text, now)
            return {}
        is_wrapped = bool(process and hook.server) and (process, hook.server) in self.wrapped
        if hook.kind is not Kind.OTHER and not is_wrapped:
            if hook.kind is Kind.CALL:
                return answer_to_call(hook, await self._judged(hook, identity))
            content = await self._released(hook, identity)
            return {} if content is None else answer_to_result(hook, content)
        return {}

    def _identity(self, hook: Hook, secret: str) -> Identity:
        headers = [("x-guard-session", f"{hook.client}-{hook.session}")]
        if secret:
            headers.append(("proxy-authorization", f"Bearer {secret}"))
        request = HttpRequest(
            method="POST",
            scheme=PROTOCOL,
            host=UPSTREAM,
            target="/",
            headers=tuple(headers),
            body=b"",
            server=UPSTREAM,
            connection=hook.session,
        )
        return identify(request, Message(), self._enforcement.credentials)

    async def _judged(self, hook: Hook, identity: Identity) -> Decision:
        traced, verdict = await self._judge(hook, identity)
        key = identity.session, hook.use
        if verdict.enforced.forwards:
            _keep(self._running, key, Running(traced))
            is_redacted = verdict.enforced is Action.REDACT
            if not is_redacted:
                return Decision("allow")
            redacted = given_arguments(hook, traced.call.arguments)
            return Decision("redact", "The guard removed private values.", arguments=redacted)
        refusal = sentence(observation(Refusal(traced.call.id, verdict)))
        if verdict.enforced is not Action.ASK:
            return Decision("block", refusal, refusal)
        question = await self._question(identity, traced.call.id)
        if hook.has_dialog and self._elicitor(identity, verdict) is not None:
            _keep(self._running, key, Running(traced, traced.call.id))
            return Decision("ask", f"{question}{self._to_remember(verdict, traced)}", refusal)
        elsewhere = f"Answer on the console or with `guard approvals grant {traced.call.id}`."
        return Decision("block", f"{question} {elsewhere}", refusal)

    def _to_remember(self, verdict: Verdict, traced: TracedCall) -> str:
        """Return how an answer covers a directory; empty where none can."""
        policy, decision = self._enforcement.guard.policy, traced.call.id
        if policy is None or not offered(policy, traced, verdict):
            return ""
        command = f"guard approvals grant {decision} --directory"
        return f" To remember the directory, run `{command}` before you answer."

    async def _question(self, identity: Identity, decision: str) -> str:
        """Return the question to a person; a record that cannot be read has none."""
        elicitor = self._enforcement.elicitor
        with suppress(GuardError):
            if elicitor is not None:
                return await elicitor.words(identity.tenant, decision)
        return "The egress guard asks about this call."

    def _elicitor(self, identity: Identity, verdict: Verdict) -> Elicitor | None:
        """Return who takes the answer of the client's dialog, None where it does not count."""
        policy, elicitor = self._enforcement.guard.policy, self._enforcement.elicitor
        if policy is None or elicitor is None:
            return None
        by = policy.ask.elicits(identity.principal, frozenset(verdict.decided_by))
        return elicitor if FORM in by else None

    async def _judge(self, hook: Hook, identity: Identity) -> tuple[TracedCall, Verdict]:
        server = hook.server or UPSTREAM
        call = ToolCall(
            id=secrets.token_hex(8),
            identity=identity,
            tool=hook.tool,
            arguments=hook.arguments,
            protocol=PROTOCOL,
            at=self._enforcement.now(),
            server=server,
            upstream=f"stdio:{server}" if hook.server else server,
        )
        guard = self._enforcement.guard
        if not hook.server:
            guard.calls.claim(call)
        [(traced, verdict)] = await guard.judge(JudgeRequest([call], _keep_redacted))
        return traced, verdict

    async def _released(self, hook: Hook, identity: Identity) -> Json:
        """Label a result; return what is shown instead of it, None for the result itself."""
        running = self._running.pop((identity.session, hook.use), None)
        if running is None:
            return WITHHELD
        traced = running.call
        if running.decision:
            approved = await self._approved(hook, traced, running.decision)
            if approved is None:
                return WITHHELD
            traced = approved
        content = hook.result
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        observed = ToolResult(traced, text, self._enforcement.now(), is_error=hook.failed)
        refused = await self._enforcement.guard.observe(observed)
        if refused is None:
            return None
        if refused.enforced is Action.REDACT:
            return refused.instead
        return sentence(observation(Refusal(traced.call.id, refused)))

    async def _approved(self, hook: Hook, asked: TracedCall, decision: str) -> TracedCall | None:
        """Record the answer that a person gave in the client's dialog; the tool has run.

        A client reports the result of a call that was asked about only where its user allowed it.
        The answer is a person's like any other: on record, for this one call.
        """
        identity, elicitor = asked.call.identity, self._enforcement.elicitor
        if elicitor is None:
            return None
        state = ElicitationState(identity.tenant, identity.principal, decision, FORM)
        # Where a person has answered elsewhere meanwhile, that grant is taken below.
        await elicitor.answered(state, {"action": ACCEPT, "content": {"approve": True}})
        again = replace(hook, arguments=asked.call.arguments)
        traced, verdict = await self._judge(again, identity)
        return traced if verdict.enforced.forwards else None


def _keep(kept: OrderedDict[Any, Any], key: Any, value: object) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > LIMIT:
        kept.popitem(last=False)


def _keep_redacted(arguments: Sequence[Mapping[str, Json] | None]) -> None:
    """Accept redacted arguments; the verdict carries them."""
    del arguments
