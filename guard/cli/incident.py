"""``guard incident …``: a poisoned memory item: what it reached, contain it, repair it, undo."""

from __future__ import annotations

import getpass
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from guard.adapters.redis.incidents import Given, IncidentOperator
from guard.cli.outcome import given_input, plain
from guard.cli.running import Audit, Key, Redis, State, Tenant, act_on, minute, now, on_record
from guard.core.errors import InputError
from guard.propagation.scope import scope_document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guard.propagation.graph import Graph
    from guard.propagation.incident import Incident
    from guard.propagation.scope import Scope, ScopedItem

EVENT: Final = "guard.incident"
"""Audit line of an operator's act on an incident."""
SECONDS: Final = 120.0
Id = Annotated[str, typer.Argument(help="Id of the incident, as `guard incident list` shows it.")]
AsJson = Annotated[bool, typer.Option("--json", help="As one JSON document.")]

app = typer.Typer(
    help="A poisoned memory item: open, scope, contain, repair, undo, close, export.",
    no_args_is_help=True,
)


def _act(
    redis: str,
    tenant: str,
    label_key: Path | None,
    act: Callable[[IncidentOperator], Awaitable[Any]],
) -> Any:
    async def with_operator(state: State) -> Any:
        return await act(IncidentOperator(state.store, state.seal, tenant))

    return act_on(redis, with_operator, label_key=label_key, timeout=SECONDS)


@app.command("open")
def open_incident(
    redis: Redis,
    item: Annotated[str, typer.Option(help="Key of an item of --store.")] = "",
    store: Annotated[str, typer.Option(help="The memory, as the policy names it.")] = "",
    node: Annotated[str, typer.Option(help="A node, as scopes and traces show it.")] = "",
    value: Annotated[str, typer.Option(help="An address, or a text with some.")] = "",
    source: Annotated[str, typer.Option(help="A sender or URL host.")] = "",
    server: Annotated[str, typer.Option(help="A listener; or `LISTENER UPSTREAM`.")] = "",
    principal: Annotated[str, typer.Option(help="Who saved it.")] = "",
    session: Annotated[str, typer.Option(help="A session of --principal.")] = "",
    since: Annotated[str, typer.Option(help="From when on (ISO 8601, UTC).")] = "",
    until: Annotated[str, typer.Option(help="Until when.")] = "",
    note: Annotated[str, typer.Option(help="What is known; it is kept with the incident.")] = "",
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Open an incident from an item, value, source, server, principal, session or time."""
    if bool(item) != bool(store):
        raise InputError("--item and --store belong together")
    if session and not principal:
        raise InputError("--session is one of a --principal")
    given = Given(
        node=node,
        item=item,
        store=store,
        value=value,
        source=source,
        server=server,
        principal=principal,
        session=session,
        since=_moment(since, 0.0),
        until=_moment(until, float("inf")),
    )
    by = getpass.getuser()
    with on_record(audit) as log:
        incident = _act(redis, tenant, label_key, lambda o: o.open(given, now(), by, note))
        log.event(EVENT, {"incident": incident.id, "act": "open", "by": by})
    typer.echo(f"{incident.id}: opened from {len(incident.roots)} events")
    typer.echo(f"see what they reached: guard incident scope {incident.id}")


@app.command("list")
def list_incidents(redis: Redis, label_key: Key = None, tenant: Tenant = "default") -> None:
    """List the incidents, the oldest first."""
    table = Table("id", "opened", "by", "about", "roots", "state", "steps")
    for one in _act(redis, tenant, label_key, lambda operator: operator.listed()):
        about = ", ".join(f"{name} {value}" for name, value in one.selectors.items())
        steps = ", ".join(f"{step.number} {step.kind} {step.state}" for step in one.steps)
        cells = (one.id, minute(one.opened_at), one.opened_by, about, str(len(one.roots)))
        table.add_row(*(escape(plain(cell)) for cell in (*cells, one.state, steps)))
    Console(width=160).print(table)


@app.command()
def scope(
    incident: Id, redis: Redis, as_json: AsJson = False, label_key: Key = None,
    tenant: Tenant = "default",
) -> None:  # fmt: skip
    """Show what an incident reached, and what is not known; nothing is changed."""
    graph, found = _act(redis, tenant, label_key, lambda operator: operator.scope(incident))
    show_scope(graph, found, as_json=as_json)


@app.command()
def contain(
    incident: Id,
    redis: Redis,
    likely: Annotated[
        bool, typer.Option("--likely", help="Likely items too, not the confirmed ones only.")
    ] = False,
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Withhold what was reached from every recall, and lower what followed from it."""
    by = getpass.getuser()
    with on_record(audit) as log:
        log.event(EVENT, {"incident": incident, "act": "contain", "by": by, "likely": likely})
        done = _act(
            redis, tenant, label_key, lambda o: o.contain(incident, now(), by, likely=likely)
        )
    _steps(done)


@app.command()
def undo(
    incident: Id,
    step: Annotated[int, typer.Argument(help="Number of the step.")],
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Take one step back: every field is as it was before."""
    by = getpass.getuser()
    with on_record(audit) as log:
        log.event(EVENT, {"incident": incident, "act": "undo", "step": step, "by": by})
        done = _act(redis, tenant, label_key, lambda o: o.undo(incident, step, now(), by))
    _steps(done)


@app.command()
def release(
    incident: Id,
    node: Annotated[list[str], typer.Argument(help="Nodes that were cleared.")],
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Let contained items that were cleared be recalled again."""
    by = getpass.getuser()
    with on_record(audit) as log:
        log.event(EVENT, {"incident": incident, "act": "release", "by": by})
        done = _act(redis, tenant, label_key, lambda o: o.release(incident, node, now(), by))
    _steps(done)


@app.command()
def close(
    incident: Id,
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Close an incident; what it contains stays contained."""
    by = getpass.getuser()
    with on_record(audit) as log:
        log.event(EVENT, {"incident": incident, "act": "close", "by": by})
        _act(redis, tenant, label_key, lambda operator: operator.close(incident, now(), by))
    typer.echo(f"{plain(incident)} is closed")


def show_scope(graph: Graph, found: Scope, *, as_json: bool) -> None:
    """Print a scope: as JSON, or as tables."""
    document = scope_document(graph, found)
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    console, counts = Console(width=140), document["counts"]
    console.print(", ".join(f"{count} {name}" for name, count in counts.items()))
    console.print(
        f"depth {found.depth} hops, mean {found.mean_hops:.2f}; "
        f"{found.coverage:.1%} of the items since the first"
    )
    table = Table("node", "tier", "hops", "R", "what", "store", "tool", "call", "session", "when")
    for item in (*found.items, *found.sends):
        table.add_row(*_cells(item))
    console.print(table)
    for place in found.causes:
        event = graph.event(place)
        console.print(
            f"root cause: {event.node.hex()} by {escape(plain(event.tool))}; its session had read "
            f"call {event.root} ({escape(plain(event.root_tool)) or 'nothing untrusted'})"
        )
    if found.cut is not None:
        nodes = ", ".join(graph.event(place).node.hex() for place in found.cut)
        console.print(f"it would not have left without: {nodes}")
    for name, count in found.unknown.items():
        console.print(f"[bold]not known[/bold]: {count} {name.replace('_', ' ')}")


def _cells(item: ScopedItem) -> list[str]:
    event, reached = item.event, item.reached
    return [
        event.node.hex(),
        reached.tier.name.lower(),
        str(reached.hops),
        f"{item.priority:.2f}",
        event.what.name.lower(),
        escape(plain(event.store)),
        escape(plain(event.tool)),
        str(event.call),
        event.session.hex()[:8],
        minute(event.at),
    ]


def _steps(incident: Incident) -> None:
    for step in incident.steps:
        changes = ", ".join(f"{count} {part}" for part, count in step.changes.items())
        conflicts = f"; {step.conflicts} changed by others, left alone" if step.conflicts else ""
        typer.echo(f"step {step.number} {step.kind} {step.state}: {changes}{conflicts}")
    if not incident.steps:
        typer.echo("nothing is left to contain")


def _moment(text: str, otherwise: float) -> float:
    if not text:
        return otherwise
    with given_input():
        found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
