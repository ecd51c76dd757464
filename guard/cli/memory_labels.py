"""``guard approve`` and ``guard memory import | list | show | trace``: labels by hand."""

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
from rich.tree import Tree

from guard.adapters.label_key import load_label_key
from guard.adapters.redis.label_operator import LabelOperator
from guard.adapters.redis.store import RedisSessionStore
from guard.cli.running import Redis, label_key_of
from guard.core.errors import GuardError
from guard.core.policy import StateLimits
from guard.memory.imports import LABELS, read_items
from guard.memory.information_point import InformationPoint
from guard.memory.seal import Seal

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
    app.command("trace")(trace)


def approve(
    decision: Annotated[str, typer.Argument(help="Decision id of the call that was asked about.")],
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Release one call that was refused with `approval_required`: this very call, once."""
    asked = _run(redis, label_key, tenant, lambda o: o.approve(decision, _now()))
    typer.echo(
        f"granted: {_plain(asked['tool'])} for principal {_plain(asked['principal'])}, session "
        f"{_plain(asked['session'])}; the same call goes out once, within {asked['ttl']} s"
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
    _run(redis, label_key, tenant, lambda o: o.import_items(items, _now()))
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
    for found in _run(redis, label_key, tenant, collect):
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
    found = _lookup(redis, label_key, tenant, (text, store, principal))
    table = Table("value", "kind", "label", "channel", "source", "call", "when")
    for value, records in found.items():
        for record in records:
            table.add_row(escape(_plain(value)), record.kind, *_cells(record))
    Console(width=140).print(table)


def trace(
    text: What,
    redis: Redis,
    store: Store = "",
    principal: Reader = "",
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Show the path that the values in a text took, as a tree."""
    found = _lookup(redis, label_key, tenant, (text, store, principal))
    root = Tree(escape(_plain(text)))
    for value, records in found.items():
        branch = root.add(escape(_plain(value)))
        ordered = sorted(records, key=lambda found: (found.record.at, found.record.call))
        for number, one in enumerate(ordered):
            record = one.record
            branch = branch.add(
                f"{'first ' if number == 0 else ''}{_way(one)}: label "
                f"[bold]{record.label.name.lower()}[/bold], call {record.call} of session "
                f"{record.session.hex()[:8]}, {escape(_plain(record.source))}, {_when(record.at)}"
            )
    if not found:
        root.add("no record: its values are unknown, and untrusted where a memory answers them")
    Console(width=140).print(root)


def _way(found: Found) -> str:
    if not found.record.sealed:
        return "an altered record"
    names = {"item": "kept as an item", "read": "read in untrusted text"}
    by_channel = {"imported": "imported", "saved": "saved", "prompt": "named by the user"}
    return names.get(found.kind) or by_channel.get(found.record.channel.value, "known")


def _cells(found: Found) -> tuple[str, str, str, str, str]:
    record = found.record
    label = record.label.name.lower() if record.sealed else "altered"
    source = escape(_plain(record.source))
    return label, record.channel.value, source, str(record.call), _when(record.at)


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _plain(text: str) -> str:
    return text.encode("unicode_escape").decode() if not text.isprintable() else text


def _now() -> float:
    return time.time()  # noqa: TID251  (an operator acts at the machine's time)


def _lookup(
    redis: str, label_key: Path | None, tenant: str, what: tuple[str, str, str]
) -> dict[str, list[Found]]:
    text, store, principal = what
    return _run(
        redis,
        label_key,
        tenant,
        lambda o: o.lookup(text, _now(), store=store, principal=principal),
    )


def _run(
    redis: str,
    label_key: Path | None,
    tenant: str,
    act: Callable[[LabelOperator], Awaitable[ResultT]],
) -> ResultT:
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
