"""How ``guard approvals`` reaches what waits: the API of a console, or the state itself.

Where a console runs, its API answers and records, and knows who may; elsewhere the commands act on
Redis with the deployment's key.
"""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar
from urllib.parse import quote

import typer

from guard.adapters.processes.console_note import ConsoleNote, find_console
from guard.adapters.processes.run_note import find_running
from guard.adapters.redis.standing import StandingOperator
from guard.cli.running import (
    Audit,
    Key,
    State,
    Tenant,
    act_on,
    label_operator,
    now,
    on_record,
)
from guard.core.errors import GuardError, InputError
from guard.provenance.approvals import (
    ApprovalRequest,
    Approver,
    AskedCall,
    AskedReceiver,
    Grant,
    Scope,
)
from guard.provenance.established import Sent
from guard.settings import read_secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guard.adapters.redis.operators import LabelOperator
    from guard.provenance.established import Established

ResultT = TypeVar("ResultT")
EVENT = "guard.approval"
"""Audit line of a person's answer."""
TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Remembered:
    """A receiver that may be sent to again, for people."""

    mark: str
    principal: str
    tool: str
    kind: str
    receiver: str
    channel: str
    until: float


class Answers(Protocol):
    """What people do about requests of one tenant."""

    def waiting(self) -> list[ApprovalRequest]:
        """Return what waits for an answer."""

    def remembered(self) -> list[Remembered]:
        """Return the receivers that may be sent to again."""

    def asked(self, decision: str) -> ApprovalRequest:
        """Return one request with the untrusted text and earlier sends."""

    def grant(self, decision: str, given: Grant) -> ApprovalRequest:
        """Approve a request; return it, ``released`` or waiting for a second person."""

    def deny(self, decision: str) -> None:
        """Refuse a request."""

    def revoke(self, mark: str) -> bool:
        """Take a remembered receiver away; return whether it was there."""

    def resume(self, principal: str) -> bool:
        """End the pause of a principal; return whether there was one."""


class DirectAnswers:
    """Acts on Redis.

    Args:
        redis: URL of the state.
        label_key: key file; None for the running guard's, else the user's own.
        tenant: whose requests.
        audit: the guard's log, which the answers go to.
    """

    def __init__(self, redis: str, label_key: Path | None, tenant: str, audit: Path | None) -> None:
        self._redis = redis
        self._key = label_key
        self._tenant = tenant
        self._audit = audit

    def waiting(self) -> list[ApprovalRequest]:
        """Return what waits for an answer."""
        return self._act(lambda labels: labels.waiting())

    def remembered(self) -> list[Remembered]:
        """Return the receivers that may be sent to again."""
        return [_remembered(one) for one in self._act(lambda labels: labels.established())]

    def asked(self, decision: str) -> ApprovalRequest:
        """Return one request with the untrusted text and earlier sends."""
        return self._act(lambda labels: labels.asked(decision))

    def grant(self, decision: str, given: Grant) -> ApprovalRequest:
        """Approve a request, as this user of this machine."""
        by = Approver(getpass.getuser(), "machine", getpass.getuser())
        with on_record(self._audit) as log:
            asked = self._act(lambda labels: labels.approve(decision, now(), given, by))
            log.event(EVENT, {**_recorded(asked, "granted"), "scope": given.scope.value})
        return asked

    def deny(self, decision: str) -> None:
        """Refuse a request."""
        with on_record(self._audit) as log:
            asked = self._act(lambda labels: labels.deny(decision))
            log.event(EVENT, _recorded(asked, "denied"))

    def revoke(self, mark: str) -> bool:
        """Take a remembered receiver away; return whether it was there."""
        with on_record(self._audit) as log:
            found = self._act(lambda labels: labels.revoke(bytes.fromhex(mark)))
            fields = {"answer": "revoked", "mark": mark, "found": found, "by": getpass.getuser()}
            log.event(EVENT, fields)
        return found

    def resume(self, principal: str) -> bool:
        """End the pause of a principal; return whether there was one."""

        async def end(state: State) -> bool:
            return await StandingOperator(state.store, state.seal, self._tenant).resume(principal)

        with on_record(self._audit) as log:
            found = act_on(self._redis, end, label_key=self._key)
            fields = {"answer": "resumed", "principal": principal, "by": getpass.getuser()}
            log.event(EVENT, fields)
        return found

    def _act(self, act: Callable[[LabelOperator], Awaitable[ResultT]]) -> ResultT:
        async def acted(state: State) -> ResultT:
            return await act(label_operator(state, self._tenant))

        return act_on(self._redis, acted, label_key=self._key)


class ConsoleAnswers:
    """Asks a console's API, which records the answers.

    Args:
        note: where it is, and with what secret.
        tenant: whose requests.
    """

    def __init__(self, note: ConsoleNote, tenant: str) -> None:
        self._note = note
        self._tenant = tenant

    def waiting(self) -> list[ApprovalRequest]:
        """Return what waits for an answer."""
        found = [_request(one) for one in self._get("approvals")["requests"]]
        return [one for one in found if one.tenant == self._tenant]

    def remembered(self) -> list[Remembered]:
        """Return the receivers that may be sent to again."""
        names = Remembered.__dataclass_fields__
        return [
            Remembered(**{name: one[name] for name in names})
            for one in self._get("established")["established"]
            if one["tenant"] == self._tenant
        ]

    def asked(self, decision: str) -> ApprovalRequest:
        """Return one request with the untrusted text and earlier sends."""
        return _request(self._get(self._place(decision)))

    def grant(self, decision: str, given: Grant) -> ApprovalRequest:
        """Approve a request, as whoever the secret is of."""
        asked = self.asked(decision)
        body: dict[str, Any] = {"answer": "once"}
        if given.scope is not Scope.CALL:
            seconds = max(1, int(given.until - now()))
            body = {"answer": "remember", "scope": given.scope.value, "seconds": seconds}
        answer = self._post(self._place(decision), body)
        return _request({**_fields(asked), "released": answer["released"]})

    def deny(self, decision: str) -> None:
        """Refuse a request."""
        self._post(self._place(decision), {"answer": "deny"})

    def revoke(self, mark: str) -> bool:
        """Take a remembered receiver away; return whether it was there."""
        return self._done("established/revoke", {"tenant": self._tenant, "mark": mark})

    def resume(self, principal: str) -> bool:
        """End the pause of a principal; return whether there was one."""
        return self._done("pauses/end", {"tenant": self._tenant, "principal": principal})

    def _place(self, decision: str) -> str:
        return f"approvals/{quote(self._tenant, safe='')}/{quote(decision, safe='')}"

    def _done(self, path: str, body: dict[str, Any]) -> bool:
        try:
            self._post(path, body)
        except NotDoneError:
            return False
        return True

    def _get(self, path: str) -> dict[str, Any]:
        return self._asked_for("GET", path, None)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._asked_for("POST", path, body)

    def _asked_for(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        import httpx

        try:
            with httpx.Client(
                verify=self._note.trust(), timeout=TIMEOUT, trust_env=False
            ) as client:
                answer = client.request(
                    method,
                    f"{self._note.url}/api/{path}",
                    json=body,
                    headers={"authorization": f"Bearer {self._note.secret}"},
                )
            found: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            msg = f"the console at {self._note.url} does not answer ({type(error).__name__})"
            raise GuardError(f"{msg}; --redis acts on the state itself") from error
        if answer.status_code == CONFLICT:
            raise NotDoneError(str(found.get("error", "")))
        if answer.is_error:
            raise GuardError(f"the console refuses: {found.get('error', answer.status_code)}")
        return found


CONFLICT = 409


class NotDoneError(GuardError):
    """The console says why it did not do what was asked."""


def answers(
    console: str | None,
    secret: Path | None,
    redis: str | None,
    key: Path | None,
    audit: Path | None,
    tenant: str,
) -> Answers:
    """Return what answers: the console that is named, or runs here; else the state.

    Args:
        console: URL of a console; None where none is named.
        secret: file with this person's secret there.
        redis: URL of the state, where that is to be acted on.
        key: its label key.
        audit: the log, where this command is to write it.
        tenant: whose requests.

    Raises:
        InputError: a console of somebody else is named without a secret, or nothing can be found.
    """
    if console is not None and secret is not None:
        return ConsoleAnswers(ConsoleNote(0, console.rstrip("/"), read_secret(secret)), tenant)
    note = find_console(console) if (redis, key, audit) == (None, None, None) else None
    if console is not None and note is None:
        raise InputError("--console needs --secret FILE: yours, of the people file")
    if note is not None:
        typer.echo(f"guard: by the console at {note.url}", err=True)
        return ConsoleAnswers(note, tenant)
    return DirectAnswers(redis or find_running().redis, key, tenant, audit)


MaybeRedis = Annotated[
    str | None,
    typer.Option(
        envvar="GUARD_REDIS",
        show_default="a console of this user, else the embedded one of this user's guard",
        help="Act on the state itself: its Redis URL.",
    ),
]
Console = Annotated[
    str | None, typer.Option(envvar="GUARD_CONSOLE_AT", help="URL of a console to act by.")
]
Secret = Annotated[
    Path | None, typer.Option(envvar="GUARD_CONSOLE_SECRET", help="File: your secret there.")
]


def _everything(
    redis: MaybeRedis = None,
    label_key: Key = None,
    tenant: Tenant = "default",
    console: Console = None,
    secret: Secret = None,
    audit: Audit = None,
) -> Answers:
    """Return what answers, from the options of a command."""
    return answers(console, secret, redis, label_key, audit, tenant)


def answering(*, records: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options by which it finds what answers; it gets that as ``people``.

    Args:
        records: whether the command changes something, and so takes the audit log as well.
    """

    def given(command: Callable[..., None]) -> Callable[..., None]:
        options = dict(signature(_everything, eval_str=True).parameters)
        if not records:
            del options["audit"]
        own = dict(signature(command, eval_str=True).parameters)
        del own["people"]

        @wraps(command)
        def run(**values: Any) -> None:
            found = _everything(**{name: values.pop(name) for name in options})
            command(found, **values)

        every = [*own.values(), *options.values()]
        every = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in every]
        vars(run)["__signature__"] = Signature(every)
        run.__annotations__ = {one.name: one.annotation for one in every}
        return run

    return given


def _remembered(one: Established) -> Remembered:
    record = one.record
    return Remembered(
        one.mark.hex(),
        one.principal,
        one.tool,
        one.kind,
        one.receiver,
        record.channel.value,
        record.until,
    )


def _fields(asked: ApprovalRequest) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(asked)


def _request(fields: dict[str, Any]) -> ApprovalRequest:
    """Return a request as the API has it."""
    calls = tuple(_call(one) for one in fields["calls"])
    return ApprovalRequest(**{**fields, "calls": calls})


def _call(fields: dict[str, Any]) -> AskedCall:
    receivers = tuple(
        AskedReceiver(**{**one, "sent": tuple(Sent(**sent) for sent in one["sent"])})
        for one in fields["receivers"]
    )
    return AskedCall(**{**fields, "receivers": receivers, "reasons": tuple(fields["reasons"])})


def _recorded(asked: ApprovalRequest, answer: str) -> dict[str, str]:
    """Return the fields of the audit line of an answer; no receiver, no text."""
    return {
        "answer": answer,
        "decision_id": asked.decision,
        "principal": asked.principal,
        "tool": ", ".join(call.tool for call in asked.calls),
        "by": getpass.getuser(),
    }
