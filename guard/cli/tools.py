"""``guard tools list | diff | approve``: pinned tool definitions, and what changed in them."""

from __future__ import annotations

import difflib
import getpass
import json
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from guard.adapters.redis.operators import PinOperator
from guard.cli.outcome import plain
from guard.cli.running import Audit, Key, Redis, State, Tenant, act_on, minute, now, on_record
from guard.core.errors import GuardError
from guard.tool_pins.pins import Pins

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from guard.tool_pins.pins import Pin

ResultT = TypeVar("ResultT")
Upstream = Annotated[str, typer.Argument(help="The server, as `guard tools list` shows it.")]
Tool = Annotated[str, typer.Argument(help="The tool's name.")]
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
        state = "pinned" if mark is None else f"changed {minute(mark.at)}: {mark.digests[0][:12]}"
        table.add_row(*map(_shown, _place(pin)), pin.digests[0][:12], minute(pin.at), state)
    for mark in marked.values():
        table.add_row(*map(_shown, _place(mark)), "", "", f"changed {minute(mark.at)}")
    Console(width=160).print(table)
    if altered := sum(pin is None for pin in found):
        raise GuardError(f"{altered} records do not bear the guard's seal")


@app.command("diff")
def diff_pins(
    upstream: Upstream, tool: Tool, redis: Redis, label_key: Key = None, tenant: Tenant = "default"
) -> None:
    """Show what changed in a tool's definition, line by line."""
    pin, mark = _run(redis, label_key, tenant, lambda o: o.compared(upstream, tool))
    before = _lines(pin) if pin is not None else ["(the pinned definition cannot be read)"]
    names = (f"pinned {pin.digests[0][:12] if pin else ''}", f"listed {mark.digests[0][:12]}")
    for line in difflib.unified_diff(before, _lines(mark), *names, lineterm=""):
        typer.echo(plain(line))


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
    with on_record(audit) as log:
        mark = _run(redis, label_key, tenant, lambda o: o.approve(upstream, tool, digest, now()))
        fields = {"upstream": mark.upstream, "tool": mark.tool, "digest": mark.digests[0]}
        log.event(EVENT, {**fields, "by": getpass.getuser()})
    typer.echo(f"approved {mark.digests[0][:12]} of {plain(mark.tool)} at {plain(mark.upstream)}")


def _place(pin: Pin) -> tuple[str, str]:
    return pin.upstream, pin.tool


def _lines(pin: Pin) -> list[str]:
    if not pin.text:
        return [f"(too long to keep; digest {pin.digests[0]})"]
    return json.dumps(json.loads(pin.text), indent=2, ensure_ascii=False, sort_keys=True).split(
        "\n"
    )


def _shown(text: str) -> str:
    """Return a server's text as a table may print it."""
    return escape(plain(text))


def _run(
    redis: str,
    label_key: Path | None,
    tenant: str,
    act: Callable[[PinOperator], Awaitable[ResultT]],
) -> ResultT:
    def acted(state: State) -> Awaitable[ResultT]:
        return act(PinOperator(state.store, Pins(state.seal), tenant))

    return act_on(redis, acted, label_key=label_key)
