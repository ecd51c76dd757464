"""``guard memory promote | review | quarantine | release | restore``: the operator's gate."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from guard.adapters.audit_log import open_audit_log
from guard.adapters.credentials.label_key import load_label_key
from guard.adapters.redis.connection import RedisClient
from guard.adapters.redis.endpoint import parse_endpoint
from guard.adapters.redis.gate_operator import GateOperator
from guard.cli.running import Redis
from guard.core.errors import GuardError
from guard.core.memory import MemoryClass, Trust
from guard.policy_files.field_types import duration_seconds
from guard.provenance.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ResultT = TypeVar("ResultT")
Tenant = Annotated[str, typer.Option(help="Whose memory.")]
Audit = Annotated[
    Path | None, typer.Option(envvar="GUARD_AUDIT", help="The guard's audit log; appended to.")
]
TIMEOUT_SECONDS = 5.0


def mount(app: typer.Typer) -> None:
    """Add the commands to ``guard memory``."""
    for command in (promote, review, quarantine, release, restore, drift):
        app.command()(command)


def promote(
    decision: Annotated[str, typer.Argument(help="Decision id of the refused write.")],
    redis: Redis,
    target: Annotated[
        MemoryClass | None,
        typer.Option("--class", parser=MemoryClass.__getitem__, metavar="L1..L4"),
    ] = None,
    expires: Annotated[str, typer.Option(help="How long it may be used, e.g. 15m.")] = "15m",
    label_key: Annotated[
        Path | None, typer.Option(envvar="GUARD_LABEL_KEY", help="The guard's label key file.")
    ] = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Let exactly this content of this principal into a class, once."""
    seal = _seal(label_key)

    async def issue(operator: GateOperator) -> tuple[str, dict[str, str]]:
        fields = (await operator.candidate(decision)).fields
        wanted = target or MemoryClass[fields["target"]]
        token = await operator.promote(decision, wanted, _seconds(expires), getpass.getuser(), seal)
        return token, {**fields, "target": wanted.name}

    token, fields = _run(redis, tenant, issue)
    shown = {"decision_id": decision, "principal": fields["principal"], "by": getpass.getuser()}
    put_on_record(audit, "guard.memory_promoted", {**shown, "memory_class": fields["target"]})
    typer.echo(f"class {fields['target']} for principal {fields['principal']}, content:")
    typer.echo(fields.get("content", ""))
    typer.echo(f"the agent's retry is let through once, within {expires}; token {token}")


def review(
    redis: Redis,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    content: Annotated[bool, typer.Option("--content", help="Show what was to be kept.")] = False,
    tenant: Tenant = "default",
) -> None:
    """List refused writes, and those whose fate is not known."""
    found = _run(redis, tenant, lambda operator: operator.review(limit))
    columns = ["id", "fate", "reasons", "principal", "tool", "target", "store", "partition"]
    table = Table(*columns, *(["content"] if content else []))
    for item in found:
        fields = item.fields
        row = [fields.get(name, "") for name in columns]
        table.add_row(
            *(_printable(cell) for cell in row),
            *([_printable(fields.get("content", ""))] if content else []),
        )
    Console(width=None if content else 160).print(table)


def quarantine(
    partition: Annotated[str, typer.Argument(help="The partition, as writes name it.")],
    redis: Redis,
    store: Annotated[str, typer.Option(help="As the policy names it.")] = "default",
    reason: Annotated[str, typer.Option(help="Why; it is audited.")] = "",
    ttl: Annotated[str, typer.Option(help="For how long, e.g. 24h.")] = "24h",
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Close a partition of a store: nothing is written to it until it is released."""
    seconds = _seconds(ttl)
    _run(redis, tenant, lambda operator: operator.quarantine(store, partition, reason, seconds))
    put_on_record(audit, "guard.memory_quarantined", {"store": store, "reason": reason, "ttl": ttl})
    typer.echo(f"partition {_printable(partition)} of {store} is closed for {ttl}")


def release(
    partition: Annotated[str, typer.Argument(help="The partition, as writes name it.")],
    redis: Redis,
    store: Annotated[str, typer.Option(help="As the policy names it.")] = "default",
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Open a quarantined partition again."""
    if not _run(redis, tenant, lambda operator: operator.release(store, partition)):
        typer.echo(f"guard memory: partition `{partition}` of `{store}` is not closed", err=True)
        raise typer.Exit(1)
    put_on_record(audit, "guard.memory_released", {"store": store})
    typer.echo(f"partition {_printable(partition)} of {store} is open")


def restore(
    kind: Annotated[str, typer.Argument(help="`principal` or `source`.")],
    name: Annotated[str, typer.Argument(help="Which: a principal, a sender or a URL host.")],
    redis: Redis,
    reason: Annotated[str, typer.Option(help="Why; it is audited.")],
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Trust a source or principal again.  The gate itself only ever lowers trust."""
    if kind not in {"principal", "source"} or not reason.strip():
        typer.echo("guard memory: say `principal` or `source`, and give a --reason", err=True)
        raise typer.Exit(3)
    # The line comes first: trust that nobody recorded must not come back.
    put_on_record(
        audit,
        "guard.memory_trust_restored",
        {"kind": kind, "name": name, "reason": reason, "by": getpass.getuser()},
        required=True,
    )
    level = _run(redis, tenant, lambda operator: operator.restore(kind, name))
    typer.echo(f"{kind} {_printable(name)} was {Trust(level).name}, is TRUSTED")


def drift(redis: Redis, tenant: Tenant = "default") -> None:
    """List what a principal's committed items were found to push."""
    table = Table("principal", "subject")
    for principal, subject in _run(redis, tenant, lambda operator: operator.drift()):
        table.add_row(_printable(principal), _printable(subject))
    Console(width=160).print(table)


def _run(redis: str, tenant: str, action: Callable[[GateOperator], Awaitable[ResultT]]) -> ResultT:
    async def connected() -> ResultT:
        client = RedisClient(parse_endpoint(redis), timeout=TIMEOUT_SECONDS)
        try:
            return await action(GateOperator(client, tenant=tenant))
        finally:
            await client.aclose()

    try:
        return asyncio.run(connected())
    except GuardError as error:
        typer.echo(f"guard memory: {error}", err=True)
        raise typer.Exit(1) from error


def _seal(label_key: Path | None) -> Seal:
    try:
        return Seal(load_label_key(label_key))
    except GuardError as error:
        typer.echo(f"guard memory: {error}", err=True)
        raise typer.Exit(3) from error


def put_on_record(
    path: Path | None, event: str, fields: dict[str, str], *, required: bool = False
) -> None:
    """Write an audit line about what an operator did, or say that there is no log.

    Raises:
        typer.Exit: there is none, and the line is required.
        AuditError: it cannot be written.
    """
    if path is None:
        typer.echo("guard memory: no --audit given, so this is not on record", err=True)
        if required:
            raise typer.Exit(3)
        return
    log = open_audit_log(path)
    try:
        log.event(event, fields)
    finally:
        log.close()


def _seconds(text: str) -> int:
    try:
        return duration_seconds(text)
    except ValueError as error:
        typer.echo(f"guard memory: {error}", err=True)
        raise typer.Exit(3) from error


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
