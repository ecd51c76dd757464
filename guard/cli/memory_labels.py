"""``guard approve`` and ``guard memory import | list | show``: labels by hand."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from guard.adapters.credentials.label_key import load_label_key
from guard.adapters.redis.label_operator import LabelOperator
from guard.adapters.redis.store import RedisSessionStore
from guard.cli.running import Redis, label_key_of
from guard.core.errors import GuardError
from guard.core.policy import StateLimits
from guard.decision.information_point import InformationPoint
from guard.provenance.imports import LABELS, read_items
from guard.provenance.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guard.adapters.redis.label_operator import Found

ResultT = TypeVar("ResultT")
Key = Annotated[
    Path | None, typer.Option(envvar="GUARD_LABEL_KEY", help="The guard's label key file.")
]
Tenant = Annotated[str, typer.Option(help="Whose memory.")]
What = Annotated[str, typer.Argument(help="An address, a text, or the key of an item.")]
Store = Annotated[str, typer.Option(help="The memory whose item it may name.")]
Reader = Annotated[str, typer.Option(help="Whose untrusted reading to look at.")]
TIMEOUT_SECONDS = 5.0
EXIT_FAILED = 1
EXIT_INVALID = 3


def mount(app: typer.Typer) -> None:
    """Add the commands to ``guard memory``."""
    app.command("import")(import_labels)
    app.command("list")(list_labels)
    app.command("show")(show)


def approve(
    decision: Annotated[str, typer.Argument(help="Decision id of the call that was asked about.")],
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Release one call that was refused with `approval_required`: this very call, once."""
    asked = run_operator(redis, label_key, tenant, lambda o: o.approve(decision, now()))
    typer.echo(
        f"granted: {plain(asked['tool'])} for principal {plain(asked['principal'])}, session "
        f"{plain(asked['session'])}; the same call goes out once, within {asked['ttl']} s"
    )


def import_labels(
    file: Annotated[Path, typer.Argument(help="JSON list of {store, value, label}.")],
    redis: Redis,
    label: Annotated[str | None, typer.Option(help="Label of items that name none.")] = None,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Label what a memory held before the guard: its values then attest, or taint."""
    if label is not None and label not in LABELS:
        typer.echo(f"guard memory: --label is one of {', '.join(LABELS)}", err=True)
        raise typer.Exit(EXIT_INVALID)
    try:
        items = read_items(file.read_text(encoding="utf-8"), LABELS[label] if label else None)
    except (OSError, ValueError) as error:
        typer.echo(f"guard memory: `{file}`: {error}", err=True)
        raise typer.Exit(EXIT_INVALID) from None
    run_operator(redis, label_key, tenant, lambda o: o.import_items(items, now()))
    typer.echo(f"labelled {len(items)} items")


def list_labels(
    redis: Redis,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 100,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """List the records of a tenant's memories; values are fingerprints, their text is not kept."""

    async def collect(operator: LabelOperator) -> list[Found]:
        found: list[Found] = []
        async for record in operator.listed():
            found.append(record)
            if len(found) >= limit:
                break
        return found

    table = Table("fingerprint", "kind", "label", "channel", "source", "call", "when")
    for found in run_operator(redis, label_key, tenant, collect):
        table.add_row(found.mark.hex()[:12], found.kind, *_cells(found))
    Console(width=140).print(table)


def show(
    text: What,
    redis: Redis,
    store: Store = "",
    principal: Reader = "",
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Show the labels of every value in a text."""
    found = run_operator(
        redis, label_key, tenant, lambda o: o.lookup(text, now(), store=store, principal=principal)
    )
    table = Table("value", "kind", "label", "channel", "source", "call", "when")
    for value, records in found.items():
        for record in records:
            table.add_row(escape(plain(value)), record.kind, *_cells(record))
    Console(width=140).print(table)


def _cells(found: Found) -> tuple[str, str, str, str, str]:
    record = found.record
    label = record.label.name.lower() if record.sealed else "altered"
    source = escape(plain(record.source))
    return label, record.channel.value, source, str(record.call), when(record.at)


def when(at: float) -> str:
    """Return a time as UTC, to the minute."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def plain(text: str) -> str:
    """Return a text that moves no cursor."""
    return text.encode("unicode_escape").decode() if not text.isprintable() else text


def now() -> float:
    """Return the machine's time."""
    return time.time()  # noqa: TID251  (an operator acts at the machine's time)


def run_operator(
    redis: str,
    label_key: Path | None,
    tenant: str,
    act: Callable[[LabelOperator], Awaitable[ResultT]],
) -> ResultT:
    """Connect, let an operator act, and close; a failure is told and exits with 1."""

    async def connected() -> ResultT:
        store = RedisSessionStore.at(redis, timeout=TIMEOUT_SECONDS)
        try:
            point = InformationPoint(Seal(load_label_key(label_key or label_key_of(redis))))
            return await act(LabelOperator(store, point, StateLimits(), tenant))
        finally:
            await store.aclose()

    try:
        return asyncio.run(connected())
    except GuardError as error:
        typer.echo(f"guard: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
