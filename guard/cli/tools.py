"""``guard tools list | diff | approve``: pinned tool definitions, and what changed in them."""

from __future__ import annotations

import asyncio
import difflib
import getpass
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from guard.adapters.audit_log import open_audit_log
from guard.adapters.credentials.label_key import load_label_key
from guard.adapters.redis.pin_operator import PinOperator
from guard.adapters.redis.store import RedisSessionStore
from guard.core.errors import GuardError
from guard.provenance.seal import Seal
from guard.tool_pins.pins import Pins

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guard.tool_pins.pins import Pin

ResultT = TypeVar("ResultT")
Upstream = Annotated[str, typer.Argument(help="The server, as `guard tools list` shows it.")]
Tool = Annotated[str, typer.Argument(help="The tool's name.")]
Redis = Annotated[str, typer.Option(envvar="GUARD_REDIS", help="Redis URL of the guard.")]
Key = Annotated[
    Path | None, typer.Option(envvar="GUARD_LABEL_KEY", help="The guard's label key file.")
]
Tenant = Annotated[str, typer.Option(help="Whose pins.")]
Audit = Annotated[
    Path | None, typer.Option(envvar="GUARD_AUDIT", help="The guard's audit log; appended to.")
]
TIMEOUT_SECONDS = 5.0
EVENT = "guard.tool_definition_approved"
app = typer.Typer(no_args_is_help=True, help="Tool definitions: what is pinned, what has changed.")


@app.command("list")
def list_pins(redis: Redis, label_key: Key = None, tenant: Tenant = "default") -> None:
    """List the tools that servers have shown, and which of them have changed."""

    async def collect(operator: PinOperator) -> list[Pin | None]:
        return [pin async for pin in operator.listed()]

    found = _run(redis, label_key, tenant, collect)
    marked = {(pin.upstream, pin.tool): pin for pin in found if pin is not None and pin.is_mark}
    table = Table("upstream", "tool", "definition", "pinned", "state")
    for pin in sorted((p for p in found if p is not None and not p.is_mark), key=_place):
        mark = marked.pop(_place(pin), None)
        state = "pinned" if mark is None else f"changed {_when(mark.at)}: {mark.digests[0][:12]}"
        table.add_row(*map(_shown, _place(pin)), pin.digests[0][:12], _when(pin.at), state)
    for mark in marked.values():
        table.add_row(*map(_shown, _place(mark)), "", "", f"changed {_when(mark.at)}")
    Console(width=160).print(table)
    if altered := sum(pin is None for pin in found):
        typer.echo(f"guard tools: {altered} records do not bear the guard's seal", err=True)
        raise typer.Exit(1)


@app.command("diff")
def diff_pins(
    upstream: Upstream, tool: Tool, redis: Redis, label_key: Key = None, tenant: Tenant = "default"
) -> None:
    """Show what changed in a tool's definition, line by line."""
    pin, mark = _run(redis, label_key, tenant, lambda o: o.compared(upstream, tool))
    before = _lines(pin) if pin is not None else ["(the pinned definition cannot be read)"]
    names = (f"pinned {pin.digests[0][:12] if pin else ''}", f"listed {mark.digests[0][:12]}")
    for line in difflib.unified_diff(before, _lines(mark), *names, lineterm=""):
        typer.echo(_shown(line))


@app.command()
def approve(
    upstream: Upstream,
    tool: Tool,
    redis: Redis,
    digest: Annotated[str, typer.Option(help="Approve this definition and no other.")] = "",
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Pin the changed definition of a tool; what was pinned before stays good too."""
    log = open_audit_log(audit)
    try:
        mark = _run(redis, label_key, tenant, lambda o: o.approve(upstream, tool, digest, _now()))
        fields = {"upstream": mark.upstream, "tool": mark.tool, "digest": mark.digests[0]}
        log.event(EVENT, {**fields, "by": getpass.getuser()})
    finally:
        log.close()
    if audit is None:
        typer.echo("guard tools: no --audit given, so this is not on record", err=True)
    typer.echo(f"approved {mark.digests[0][:12]} of {_shown(mark.tool)} at {_shown(mark.upstream)}")


def _place(pin: Pin) -> tuple[str, str]:
    return pin.upstream, pin.tool


def _lines(pin: Pin) -> list[str]:
    if not pin.text:
        return [f"(too long to keep; digest {pin.digests[0]})"]
    return json.dumps(json.loads(pin.text), indent=2, ensure_ascii=False, sort_keys=True).split(
        "\n"
    )


def _shown(text: str) -> str:
    """Return a server's text as a terminal may print it."""
    return escape(
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _now() -> float:
    return time.time()  # noqa: TID251  (an operator acts at the machine's time)


def _run(
    redis: str,
    label_key: Path | None,
    tenant: str,
    act: Callable[[PinOperator], Awaitable[ResultT]],
) -> ResultT:
    async def connected() -> ResultT:
        store = RedisSessionStore.at(redis, timeout=TIMEOUT_SECONDS)
        try:
            return await act(PinOperator(store, Pins(Seal(load_label_key(label_key))), tenant))
        finally:
            await store.aclose()

    try:
        return asyncio.run(connected())
    except GuardError as error:
        typer.echo(f"guard tools: {error}", err=True)
        raise typer.Exit(1) from None
