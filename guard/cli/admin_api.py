"""The admin API as commands use it: of a console, or of this process.

Where a console runs, its API answers and records, and knows who may.  Where none does, the same
routes run in this process, on Redis, with the deployment's key.  A command names the operations
that it may call; each is in the API's OpenAPI document, and no other is called.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from guard.cli.options import with_parameters
from guard.cli.running import Audit, Key, State, Tenant, act_on, now, on_record
from guard.core.errors import GuardError, InputError, StateError
from guard.processes.notes import ConsoleNote, find_console, find_running
from guard.settings import read_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx

    from guard.telemetry.audit_log import AuditLogFile, NoAuditLog

SECONDS: Final = 120.0
"""Seconds that one operation may take: a scope may be of a million items."""
OPERATIONS: Final = "__operations__"
"""Attribute of a command: the operations that it calls, as ``METHOD /path``."""
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
CONFLICT: Final = 409
INVALID: Final = 400
UNAVAILABLE: Final = 503


class NotDoneError(GuardError):
    """The API says why it did not do what was asked."""


@dataclass(frozen=True, slots=True)
class ByConsole:
    """To a console."""

    note: ConsoleNote

    def asked(self, method: str, path: str, query: dict[str, str], body: Any) -> httpx.Response:
        """Return the answer to one request.

        Raises:
            GuardError: there is none.
        """
        import httpx

        url, secret = f"{self.note.url}{path}", f"Bearer {self.note.secret}"
        try:
            with httpx.Client(verify=self.note.trust(), timeout=SECONDS, trust_env=False) as client:
                return client.request(
                    method, url, params=query, json=body, headers={"authorization": secret}
                )
        except httpx.HTTPError as error:
            msg = f"the console at {self.note.url} does not answer ({type(error).__name__})"
            raise GuardError(f"{msg}; --redis with --label-key acts on the state itself") from error


@dataclass(frozen=True, slots=True)
class InProcess:
    """To the routes in this process."""

    redis: str
    label_key: Path | None
    tenant: str
    audit: Path | None
    records: bool
    """True if this command changes something."""
    server: str = ""
    """Address of the guard's listener in front of a memory, to which repairs are written."""
    secret: Path | None = None

    def asked(self, method: str, path: str, query: dict[str, str], body: Any) -> httpx.Response:
        """Return the answer to one request."""
        from guard.console.resources import answered, local_api
        from guard.operations.deployment import Deployment
        from guard.runtime.mcp_client.memory_writer import memory_writer
        from guard.telemetry.audit_log import NoAuditLog

        async def tenants() -> list[str]:
            return [self.tenant]

        async def act(log: AuditLogFile | NoAuditLog, state: State) -> httpx.Response:
            deployment = Deployment(state.store, state.seal, log, now, tenants)
            servers = (self.server,) if self.server else ()
            pages = local_api(deployment, memory_writer(self.secret), servers)
            return await answered(pages, method, path, query, body)

        records = self.records and method != "GET"
        with on_record(self.audit, self.redis) if records else nullcontext(NoAuditLog()) as log:
            acted, key = partial(act, log), self.label_key
            return act_on(self.redis, acted, label_key=key, timeout=SECONDS)


@dataclass(frozen=True, slots=True)
class AdminApi:
    """The API as one command may use it.

    Args:
        transport: sends its requests.
        tenant: whom it is about.
        operations: that it may call.
    """

    transport: ByConsole | InProcess
    tenant: str
    operations: frozenset[str]

    def get(self, path: str, **values: object) -> Any:
        """Return what a route tells: JSON values, or the lines of a list.

        Args:
            path: as the OpenAPI document has it; ``tenant`` is filled in.
            values: of its parameters, and of its query.
        """
        return self._asked("GET", path, values, None)

    def post(self, path: str, body: Mapping[str, object], **values: object) -> Any:
        """Return what a route tells that is sent something.

        Args:
            path: as in :meth:`get`.
            body: JSON values.
            values: of its parameters.
        """
        return self._asked("POST", path, values, body)

    def writing(self, server: str, secret: Path | None) -> AdminApi:
        """Return it with a listener through which repairs are written; a console has its own.

        Raises:
            InputError: a secret is named, which is not sent to a console.
        """
        if isinstance(self.transport, InProcess):
            transport = replace(self.transport, server=server, secret=secret)
            return replace(self, transport=transport)
        if secret is not None:
            raise InputError(
                "the console writes as whom `--console-memory-secret` says; leave --as out"
            )
        return self

    def _asked(self, method: str, path: str, values: dict[str, object], body: Any) -> Any:
        if f"{method} {path}" not in self.operations:
            raise GuardError(f"this command does not say that it calls `{method} {path}`")
        given = {"tenant": self.tenant, **values}
        place = _PARAMETER.sub(lambda name: quote(str(given.pop(name[1])), safe=""), path)
        query = {name: str(value) for name, value in given.items()} if method == "GET" else {}
        answer = self.transport.asked(method, place, query, body)
        if answer.headers.get("content-type", "").startswith("application/jsonl"):
            return answer.text.splitlines()
        return _json_of(answer)


def _json_of(answer: httpx.Response) -> Any:
    """Return the JSON of an answer.

    Raises:
        GuardError: it says that something was not done.
    """
    try:
        found = answer.json()
    except ValueError as error:
        raise GuardError(f"the API gave no usable answer ({answer.status_code})") from error
    if not answer.is_error:
        return found
    text = str(found.get("error", answer.status_code))
    kinds = {CONFLICT: NotDoneError, INVALID: InputError, UNAVAILABLE: StateError}
    if answer.status_code in kinds:
        raise kinds[answer.status_code](text)
    raise GuardError(f"the console refuses: {text}")


MaybeRedis = Annotated[
    str | None,
    typer.Option(
        envvar="GUARD_REDIS",
        show_default="a console of this user, else the embedded one of this user's guard",
        help="Where no console runs: the guard's state, as a Redis URL.",
    ),
]
Console = Annotated[
    str | None,
    typer.Option(
        envvar="GUARD_CONSOLE_AT",
        show_default="the one of this user",
        help="URL of the console whose API this goes to.",
    ),
]
Secret = Annotated[
    Path | None, typer.Option(envvar="GUARD_CONSOLE_SECRET", help="File: your secret there.")
]


def connect_api(
    *,
    console: str | None,
    secret: Path | None,
    redis: str | None,
    key: Path | None,
    audit: Path | None,
    tenant: str,
    records: bool,
) -> ByConsole | InProcess:
    """Return the way to the API: of the console that is named, or runs here; else in this process.

    Args:
        console: URL of a console; None where none is named.
        secret: file with this person's secret there.
        redis: URL of the state.
        key: its label key; who gives it acts on the state itself.
        audit: the log of what is done that way.
        tenant: whom it is about.
        records: whether the command changes something.

    Raises:
        InputError: a console of somebody else is named without a secret, or nothing can be found.
    """
    if console is not None and secret is not None:
        return ByConsole(ConsoleNote(0, console.rstrip("/"), read_secret(secret)))
    note = find_console(console, redis) if (key, audit) == (None, None) else None
    if console is not None and note is None:
        raise InputError("--console needs --secret FILE: yours, of the people file")
    if note is not None:
        typer.echo(f"guard: by the console at {note.url}", err=True)
        return ByConsole(note)
    state = redis or find_running().redis
    if records:
        typer.echo("guard: no console of yours runs there: this acts on the state itself", err=True)
    return InProcess(state, key, tenant, audit, records)


def _options(
    redis: MaybeRedis = None,
    label_key: Key = None,
    tenant: Tenant = "default",
    console: Console = None,
    secret: Secret = None,
    audit: Audit = None,
) -> None:
    """Have the options that every command takes which acts by the API."""


def by_api(
    *operations: str, records: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options by which it finds the API; it gets that as ``api``.

    Args:
        operations: that it calls, as ``METHOD /path`` of the OpenAPI document.
        records: whether the command changes something, and so takes the audit log as well.
    """

    def given(command: Callable[..., None]) -> Callable[..., None]:
        options = dict(signature(_options, eval_str=True).parameters)
        if not records:
            del options["audit"]
        own = dict(signature(command, eval_str=True).parameters)
        del own["api"]

        @wraps(command)
        def act(**values: Any) -> None:
            of = {name: values.pop(name) for name in options}
            transport = connect_api(
                console=of["console"],
                secret=of["secret"],
                redis=of["redis"],
                key=of["label_key"],
                audit=of.get("audit"),
                tenant=of["tenant"],
                records=records,
            )
            command(AdminApi(transport, of["tenant"], frozenset(operations)), **values)

        run = with_parameters(act, [*own.values(), *options.values()])
        setattr(run, OPERATIONS, operations)
        return run

    return given
