"""The guard inside an agent's own process, where tools are functions and there is no wire.

The same policies, state, memory gate and pipeline (:class:`guard.pipeline.guard.Guard`) as behind
the proxy; what is missing is the enforcement point, so the program itself must not run a tool whose
call was refused.  :meth:`Session.call` does all of it for one call.

Public, and versioned semantically: what ``guard.__all__`` lists.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import TracebackException
from types import GeneratorType
from typing import Any, Final

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from guard.core.calls import ToolResult, TracedCall
from guard.core.errors import Fate, GuardError
from guard.core.model import Identity, Json, PrincipalRung, SessionRung, ToolCall, UserPrompt
from guard.core.policy import Action, Reason
from guard.core.policy import Verdict as Decision
from guard.core.remedies import RemedyKind
from guard.operations.labels import LabelOperator
from guard.pipeline.holding import Holding
from guard.pipeline.outcome import JudgeRequest
from guard.protocols.refusals import APPROVAL, Refusal, observation, sentence
from guard.provenance.approvals import ApprovalRequest, Grant, Scope
from guard.runtime.wiring import Parts, assemble
from guard.settings import EMBEDDED, load_settings, policies_directory
from guard.store.approval_requests import RedisAnswers
from guard.store.in_process import MEMORY, InProcessClient
from guard.store.topology import open_client

PROTOCOL: Final = "in_process"
"""Protocol of such a call in audit lines."""
_DECISION_BYTES: Final = 8
_DEPTH: Final = 200
"""Levels of arguments that are judged."""
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
APPROVAL_HERE: Final = (
    "waiting for approval of {id}: a person approves it in the program that this agent runs in; "
    "repeat this exact call after it was given"
)
"""Message if the state is in memory, where no command can reach it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one call."""

    allowed: bool
    """True if the tool may run; in monitor mode always."""
    action: str
    """``allow``, ``redact``, ``ask`` or ``block``, in monitor mode too."""
    arguments: Mapping[str, Json]
    """Arguments to run the tool with: redacted where the policy says so."""
    reasons: tuple[Reason, ...]
    """Every rule that matched and every error, the winning action's first."""
    decision_id: str
    """Name in audit lines and approvals."""
    refusal: str
    """In words for the model: why, and what would help; empty where it is allowed."""
    details: Mapping[str, Json]
    """The same for a program; empty where it is allowed."""
    _traced: TracedCall = field(repr=False)


@dataclass(frozen=True, slots=True)
class Released:
    """Part of a result that may be shown."""

    content: Json
    """The result, or the refusal in words where it is withheld."""
    withheld: Verdict | None = None
    """Why nothing of the result may be shown; None where it is released."""
    replaced: bool = False
    """True if parts of the result are missing in ``content``: show that, not the result."""


class Refused(GuardError):  # noqa: N818  (not an error of the guard: a verdict)
    """A call was not allowed, or its result is withheld; the text is for the model.

    Attributes:
        verdict: the guard's.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(verdict.refusal)


class Session:
    """One run of one agent.  Of :meth:`Guard.session`."""

    def __init__(self, guard: Guard, identity: Identity, *, follow_remedies: bool = False) -> None:
        self._guard = guard
        self._follows = follow_remedies
        self.identity = identity
        """Principal and session, as every verdict and audit line has them."""

    async def prompt(
        self,
        text: str,
        *,
        recipients: Sequence[str] = (),
        hosts: Sequence[str] = (),
        attachments: Sequence[str] = (),
    ) -> None:
        """Note what a person typed: receivers that it names may be sent to in this session.

        Never pass text or values that an agent, a tool or a document wrote.

        Args:
            text: as typed.
            recipients: that the person chose beside the text, one destination each.
            hosts: that the person chose, whose pages may be read.
            attachments: files, messages and pages that the person chose.

        Raises:
            GuardError: it could not be stored; nothing in it vouches for anything.
        """
        await self._guard.parts.guard.notes.prompt(
            self.identity,
            UserPrompt(text, tuple(recipients), tuple(hosts), tuple(attachments)),
            self._guard.now(),
        )

    async def authorize(
        self, tool: str, arguments: Mapping[str, Json], *, server: str = ""
    ) -> Verdict:
        """Judge a call before it runs.  Whatever goes wrong then is a refusal.

        Args:
            tool: its name, as the policy maps it.
            arguments: JSON values by name, judged as they are now.  Objects are judged by what they
                hold (models and dataclasses with every field, secrets too), others by their text.
            server: whose tool it is, where the policy tells servers apart.

        Raises:
            GuardError: the arguments have no JSON form, or nest too deeply.
        """
        if not isinstance(arguments, Mapping):
            raise GuardError("arguments are a mapping of names to values")
        inner = self._guard.parts.guard
        given = _judged(arguments)

        async def judged() -> tuple[TracedCall, Decision]:
            call = ToolCall(
                id=secrets.token_hex(_DECISION_BYTES),
                identity=self.identity,
                tool=tool,
                arguments=given,
                protocol=PROTOCOL,
                at=self._guard.now(),
                server=server,
                upstream=server,
            )
            # A program that names a server of its own tools is what a listing is elsewhere.
            inner.calls.claim(call)
            [(traced, decision)] = await inner.judge(JudgeRequest([call], _take_redacted))
            return traced, decision

        found = await judged()
        if self._follows and _only_approval_helps(found[1]):
            policy = inner.policy_for(self.identity)
            seconds = policy.limits.approval if policy is not None else 0
            size = len(json.dumps(given))
            found = await self._guard.holding.hold_call(found, size, seconds, judged)
        return _verdict(*found, self._guard.approval)

    async def observe(
        self, verdict: Verdict, result: object, *, is_error: bool = False, is_lost: bool = False
    ) -> Released:
        """Label what an allowed call brought, before the agent sees it.

        Args:
            verdict: of :meth:`authorize`.
            result: what the tool returned, or the error that it raised, which is read with its
                notes, causes and parts.  Text that is JSON or YAML is read as such; a value
                that JSON lacks is read as pydantic would write it.  What that raises is labelled
                and raised.
            is_error: the tool failed, and ``result`` says how.
            is_lost: nobody knows whether the tool did it.

        Raises:
            GuardError: the verdict does not allow the call, so it has no result.
        """
        if not verdict.allowed:
            raise GuardError("a refused call has no result; do not run the tool")
        try:
            content = _as_json(result)
        except Exception as error:
            # A lazy result runs while it is read, and a broken one says what is in it.
            await self.observe(verdict, error, is_error=True, is_lost=is_lost)
            raise
        observed = ToolResult(
            verdict._traced,  # noqa: SLF001  (this module made it)
            # Written as by a server, for a model to read; fields are found in the text.
            content if isinstance(content, str) else json.dumps(content, ensure_ascii=False),
            self._guard.now(),
            is_error=is_error,
            is_lost=is_lost,
        )
        decision = await self._guard.parts.guard.observe(observed)
        if decision is None:
            return Released(content)
        if decision.enforced is Action.REDACT:
            # The rest of what a memory answered, without what an incident contains.
            left = decision.instead
            shown = left if isinstance(content, str) else json.loads(left)
            return Released(shown, replaced=True)
        fate = Fate.UNKNOWN if is_lost else Fate.WITHHELD
        withheld = _verdict(observed.call, decision, self._guard.approval, fate)
        return Released(withheld.refusal, withheld)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Json],
        run: Callable[[Mapping[str, Json]], object],
        *,
        server: str = "",
    ) -> Json:
        """Judge a call, run it where it is allowed, and return what may be shown of its result.

        Args:
            tool: as for :meth:`authorize`.
            arguments: as for :meth:`authorize`.
            run: runs the tool with these arguments, or with the redacted ones; plain or async.
                Lists and mappings are copies, so that nobody changes them while they are judged.
                What it raises is raised on, once its text has been labelled.
            server: as for :meth:`authorize`.

        Raises:
            Refused: the call is not allowed and did not run, or its result is withheld.
            GuardError: an object in the arguments changed while it was judged; it did not run.
        """
        arguments = _kept(arguments)
        verdict = await self.authorize(tool, arguments, server=server)
        if not verdict.allowed:
            raise Refused(verdict)
        try:
            result = run(_to_run_with(verdict, arguments))
            if inspect.isawaitable(result):
                result = await result
        except Exception as error:
            _checked(await self.observe(verdict, error, is_error=True))
            raise
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.observe(verdict, error, is_lost=True)
            raise
        return _checked(await self.observe(verdict, result))


class Guard:
    """A guard in this process; make one with :meth:`open`."""

    def __init__(self, parts: Parts, approval: str = APPROVAL) -> None:
        self.parts = parts
        """Internal."""
        self.approval = approval
        """Internal: how an agent is told that a person approves a call."""
        self.holding = Holding(
            RedisAnswers(parts.store), parts.guard.policy_for, parts.audit, parts.metrics
        )
        """Internal: calls that wait for a person's answer."""
        self.now = time.time  # noqa: TID251  (the clock of the program that it runs in)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        policy: str | Path | Sequence[str | Path] = (),
        *,
        state: str = MEMORY,
        audit: str | Path | None = None,
        label_key: str | Path | None = None,
    ) -> AsyncIterator[Guard]:
        """Open a guard; it is closed at the end of the ``async with`` block.

        Args:
            policy: the policy files; left out, the shipped ``default.yaml``.
            state: ``memory`` keeps labels, windows and approvals in this object, and loses them
                with it: what agents have saved is then of unknown origin.  A ``redis://`` URL
                keeps them, and shares them with every guard on that Redis.
            audit: file of the audit log; left out, none is kept.
            label_key: key file of labels and grants; with a Redis, the same for all its guards.

        Raises:
            GuardError: a policy, model, key or Redis that cannot be used.
        """
        paths = [policy] if isinstance(policy, str | Path) else list(policy)
        kept = state != MEMORY
        settings = load_settings(
            None,
            policy=[Path(p) for p in paths] or [policies_directory() / "default.yaml"],
            redis=state if kept else EMBEDDED,
            audit=None if audit is None else Path(audit),
            label_key=None if label_key is None else Path(label_key),
        )
        with TemporaryDirectory(prefix="guard-") as directory:
            client = (
                open_client(state, timeout=settings.state_timeout, durability=settings.durability)
                if kept
                else InProcessClient()
            )
            parts = assemble(settings, state, confdir=Path(directory), client=client)
            try:
                await parts.store.verify()
                await parts.recovery.beat()
                watches = [parts.store.watch(), parts.recovery.watch()] if kept else []
                background = [asyncio.ensure_future(watch) for watch in watches]
                try:
                    yield cls(parts, APPROVAL if kept else APPROVAL_HERE)
                finally:
                    for task in background:
                        task.cancel()
            finally:
                await parts.store.aclose()
                parts.close()

    @classmethod
    @contextmanager
    def open_sync(
        cls,
        policy: str | Path | Sequence[str | Path] = (),
        *,
        state: str = MEMORY,
        audit: str | Path | None = None,
        label_key: str | Path | None = None,
    ) -> Iterator[SyncGuard]:
        """Open a guard for code without an event loop; it has one in a thread of its own.

        The arguments and what is raised are those of :meth:`open`.
        """
        opened = cls.open(policy, state=state, audit=audit, label_key=label_key)
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(opened) as guard:
            yield SyncGuard(guard, portal)

    def session(
        self,
        session: str = "",
        *,
        principal: str = "agent",
        tenant: str = "default",
        follow_remedies: bool = False,
    ) -> Session:
        """Return a run of an agent.

        Args:
            session: its id; left out, a new one.
            principal: who the agent is.  Its labels, limits and established receivers are its own.
            tenant: principals of one tenant share memories and what they hold.
            follow_remedies: wait for a person's answer where nothing else helps, and judge the call
                again; what the model or the user can do is in the refusal.
        """
        identity = Identity(
            principal,
            session or secrets.token_hex(_DECISION_BYTES),
            tenant,
            PrincipalRung.CREDENTIAL,
            SessionRung.GUARD_HEADER,
        )
        return Session(self, identity, follow_remedies=follow_remedies)

    async def waiting(self, *, tenant: str = "default") -> list[ApprovalRequest]:
        """Return what waits for approval, the oldest first."""
        return await self._approvals(tenant).waiting()

    async def asked(self, decision_id: str, *, tenant: str = "default") -> ApprovalRequest:
        """Return what a call that waits for approval would do, for a person to read.

        Raises:
            GuardError: none waits under this decision id.
        """
        return await self._approvals(tenant).asked(decision_id)

    async def approve(
        self, decision_id: str, *, remember: float = 0.0, tenant: str = "default"
    ) -> ApprovalRequest:
        """Let one call that was asked about run, once, when it is repeated; return what was asked.

        Args:
            decision_id: of the verdict; a person has decided, never the agent.
            remember: for how many seconds this principal may send to its receivers again with this
                tool; 0 for this one call.
            tenant: of the session.

        Raises:
            GuardError: none waits under this decision id, or its time is over.
        """
        now = self.now()
        grant = Grant(Scope.PRINCIPAL, now + remember) if remember else Grant()
        return await self._approvals(tenant).approve(decision_id, now, grant)

    async def deny(self, decision_id: str, *, tenant: str = "default") -> bool:
        """Take a call that waits for approval away; return whether it was there."""
        try:
            await self._approvals(tenant).deny(decision_id)
        except GuardError:
            return False
        return True

    def _approvals(self, tenant: str) -> LabelOperator:
        return LabelOperator(self.parts.store, self.parts.seal, self.parts.policy.limits, tenant)

    async def authorize(
        self,
        tool: str,
        arguments: Mapping[str, Json],
        *,
        session: str,
        principal: str = "agent",
        server: str = "",
    ) -> Verdict:
        """Judge a call of a session, see :meth:`Session.authorize`."""
        run = self.session(session, principal=principal)
        return await run.authorize(tool, arguments, server=server)

    async def observe(
        self, verdict: Verdict, result: object, *, is_error: bool = False
    ) -> Released:
        """Label what an allowed call brought, see :meth:`Session.observe`."""
        run = Session(self, verdict._traced.call.identity)  # noqa: SLF001  (as there)
        return await run.observe(verdict, result, is_error=is_error)


class SyncSession:
    """A :class:`Session` whose methods wait."""

    def __init__(self, session: Session, portal: BlockingPortal) -> None:
        self._session = session
        self._portal = portal

    @property
    def identity(self) -> Identity:
        """See :attr:`Session.identity`."""
        return self._session.identity

    def prompt(
        self,
        text: str,
        *,
        recipients: Sequence[str] = (),
        hosts: Sequence[str] = (),
        attachments: Sequence[str] = (),
    ) -> None:
        """See :meth:`Session.prompt`."""
        self._portal.call(
            lambda: self._session.prompt(
                text, recipients=recipients, hosts=hosts, attachments=attachments
            )
        )

    def authorize(self, tool: str, arguments: Mapping[str, Json], *, server: str = "") -> Verdict:
        """See :meth:`Session.authorize`."""
        return self._portal.call(lambda: self._session.authorize(tool, arguments, server=server))

    def observe(
        self, verdict: Verdict, result: object, *, is_error: bool = False, is_lost: bool = False
    ) -> Released:
        """See :meth:`Session.observe`."""
        return self._portal.call(
            lambda: self._session.observe(verdict, result, is_error=is_error, is_lost=is_lost)
        )

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Json],
        run: Callable[[Mapping[str, Json]], object],
        *,
        server: str = "",
    ) -> Json:
        """See :meth:`Session.call`; ``run`` is called in this thread."""
        arguments = _kept(arguments)
        verdict = self.authorize(tool, arguments, server=server)
        if not verdict.allowed:
            raise Refused(verdict)
        try:
            result = run(_to_run_with(verdict, arguments))
        except Exception as error:
            _checked(self.observe(verdict, error, is_error=True))
            raise
        except BaseException as error:
            self.observe(verdict, error, is_lost=True)
            raise
        return _checked(self.observe(verdict, result))


class SyncGuard:
    """A :class:`Guard` for code without an event loop.  Of :meth:`Guard.open_sync`."""

    def __init__(self, guard: Guard, portal: BlockingPortal) -> None:
        self._guard = guard
        self._portal = portal

    def session(
        self,
        session: str = "",
        *,
        principal: str = "agent",
        tenant: str = "default",
        follow_remedies: bool = False,
    ) -> SyncSession:
        """See :meth:`Guard.session`."""
        run = self._guard.session(
            session, principal=principal, tenant=tenant, follow_remedies=follow_remedies
        )
        return SyncSession(run, self._portal)

    def waiting(self, *, tenant: str = "default") -> list[ApprovalRequest]:
        """See :meth:`Guard.waiting`."""
        return self._portal.call(lambda: self._guard.waiting(tenant=tenant))

    def asked(self, decision_id: str, *, tenant: str = "default") -> ApprovalRequest:
        """See :meth:`Guard.asked`."""
        return self._portal.call(lambda: self._guard.asked(decision_id, tenant=tenant))

    def approve(
        self, decision_id: str, *, remember: float = 0.0, tenant: str = "default"
    ) -> ApprovalRequest:
        """See :meth:`Guard.approve`."""
        return self._portal.call(
            lambda: self._guard.approve(decision_id, remember=remember, tenant=tenant)
        )

    def deny(self, decision_id: str, *, tenant: str = "default") -> bool:
        """See :meth:`Guard.deny`."""
        return self._portal.call(lambda: self._guard.deny(decision_id, tenant=tenant))


def _only_approval_helps(decision: Decision) -> bool:
    """Return whether a call is refused, and only a person's answer helps."""
    kinds = [one.kind for one in decision.remedies]
    return not decision.enforced.forwards and kinds == [RemedyKind.AWAIT_APPROVAL]


def _verdict(
    traced: TracedCall, decision: Decision, approval: str, fate: Fate = Fate.NOT_SENT
) -> Verdict:
    allowed = decision.enforced.forwards
    details: dict[str, Json] = {}
    if not allowed:
        details = observation(Refusal(traced.call.id, decision, fate=fate, approval=approval))
    return Verdict(
        allowed=allowed,
        action=decision.action.label,
        arguments=dict(traced.call.arguments),
        reasons=decision.reasons,
        decision_id=traced.call.id,
        refusal=sentence(details) if details else "",
        details=details,
        _traced=traced,
    )


def _checked(released: Released) -> Json:
    """Return what may be shown of a result.

    Raises:
        Refused: nothing may be.
    """
    if released.withheld is not None:
        raise Refused(released.withheld) from None
    return released.content


def _to_run_with(verdict: Verdict, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the caller's own objects, unless what may leave differs from them.

    Raises:
        GuardError: one of them is not what it was when it was judged.
    """
    if verdict.action == Action.REDACT.label:
        return verdict.arguments
    if arguments != verdict.arguments and _judged(arguments) != verdict.arguments:
        raise GuardError("the arguments changed while they were judged; call the tool again")
    return arguments


def _kept(value: Any) -> Any:
    """Return arguments in containers that nobody else holds; other objects are the caller's."""
    if isinstance(value, Mapping):
        return {name: _kept(part) for name, part in value.items()}
    if isinstance(value, list | GeneratorType):
        return [_kept(part) for part in value]
    return tuple(map(_kept, value)) if type(value) is tuple else value


def _judged(value: Any, depth: int = 0) -> Any:
    """Return arguments as JSON that has everything which a tool finds in them.

    Raises:
        GuardError: something would be missing in it.
    """
    if type(value) in _PLAIN:
        return value
    if depth > _DEPTH:
        raise GuardError("the arguments nest too deeply, or in a circle, to be judged")
    if isinstance(value, Mapping):
        named = [(k if isinstance(k, str) else _as_json(k), v) for k, v in value.items()]
        members = {str(name): _judged(part, depth + 1) for name, part in named}
        if len(members) != len(named):
            raise GuardError("two members of the arguments have one name in JSON")
        return members
    if isinstance(value, list | tuple | AbstractSet | GeneratorType):
        return [_judged(part, depth + 1) for part in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    parts = _parts(value)
    return _as_json(value) if parts is None else _judged(parts, depth + 1)


def _parts(value: Any) -> Any:
    """Return what an object holds though it does not write it out; None where that is not known."""
    if isinstance(value, BaseModel):
        # Fields that are left out of what it writes, and what its own serializer changes.
        known = type(value).model_fields
        return {
            (known[name].serialization_alias or name) if name in known else name: part
            for name, part in value
        }
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    secret = getattr(value, "get_secret_value", None)
    return secret() if callable(secret) else None


def _as_json(value: object) -> Json:
    """Return a value as JSON would have it; an object that has no such form, as its text."""
    if isinstance(value, str):
        return value
    if isinstance(value, BaseException):
        # Frameworks show any of these: causes, parts of a group, notes.
        told = TracebackException.from_exception(value, limit=0).format()
        return f"{value!r}\n{''.join(told)}"
    return to_jsonable_python(value, fallback=str, inf_nan_mode="strings")


def _take_redacted(arguments: Sequence[Mapping[str, Json] | None]) -> None:
    """Stand for the rewriting of a message: the verdict carries the redacted arguments."""
    del arguments
