"""``guard incident …``: a poisoned memory item: what it reached, contain it, repair it, undo."""

from __future__ import annotations

import asyncio
import getpass
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from guard.adapters.mcp_client.memory_writer import memory_writer
from guard.adapters.redis.incidents import Given, IncidentOperator
from guard.cli.outcome import Code, given_input, plain
from guard.cli.running import (
    Audit,
    Key,
    Redis,
    ResultT,
    State,
    Tenant,
    act_on,
    minute,
    now,
    on_record,
)
from guard.core.errors import InputError
from guard.propagation.evidence import Tier
from guard.propagation.export import (
    FORMATS,
    as_csv,
    as_graphml,
    as_json,
    as_stix,
    document_of,
    is_signed,
)
from guard.propagation.repair import WINDOW, Held, proposal_document
from guard.propagation.scope import scope_document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guard.adapters.redis.incidents import Texts
    from guard.propagation.graph import Graph
    from guard.propagation.incident import Incident
    from guard.propagation.scope import Scope, ScopedItem

EVENT: Final = "guard.incident"
"""Audit line of an operator's act on an incident."""
SECONDS: Final = 120.0
EXCERPT: Final = 100
"""Characters of a kept text that are shown."""
Id = Annotated[str, typer.Argument(help="Id of the incident, as `guard incident list` shows it.")]
AsJson = Annotated[bool, typer.Option("--json", help="As one JSON document.")]

app = typer.Typer(
    help="A poisoned memory item: open, scope, contain, repair, undo, close, export.",
    no_args_is_help=True,
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where an operator looks and acts.

    Args:
        redis: URL of the guard's state.
        tenant: whose incidents.
        label_key: file of the guard's key.
        audit: the log that acts are recorded in; None records nothing, and says so.
    """

    redis: str
    tenant: str
    label_key: Path | None
    audit: Path | None = None

    def ask(self, act: Callable[[IncidentOperator], Awaitable[ResultT]]) -> ResultT:
        """Return what an operator sees."""

        async def with_operator(state: State) -> ResultT:
            return await act(IncidentOperator(state.store, state.seal, self.tenant))

        return act_on(self.redis, with_operator, label_key=self.label_key, timeout=SECONDS)

    def act(
        self,
        incident: str,
        name: str,
        act: Callable[[IncidentOperator, str], Awaitable[ResultT]],
        **more: object,
    ) -> ResultT:
        """Have an operator act on an incident, on record before anything is changed.

        Args:
            incident: its id.
            name: of the act.
            act: is given the operator and who it is.
            more: of the act, for the record.
        """
        by = getpass.getuser()
        with on_record(self.audit) as log:
            log.event(EVENT, {"incident": incident, "act": name, "by": by, **more})
            return self.ask(lambda operator: act(operator, by))


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
    by, target = getpass.getuser(), Target(redis, tenant, label_key, audit)
    with on_record(audit) as log:
        incident = target.ask(lambda o: o.open(given, now(), by, note))
        log.event(EVENT, {"incident": incident.id, "act": "open", "by": by})
    typer.echo(f"{incident.id}: opened from {len(incident.roots)} events")
    typer.echo(f"see what they reached: guard incident scope {incident.id}")


@app.command("list")
def list_incidents(redis: Redis, label_key: Key = None, tenant: Tenant = "default") -> None:
    """List the incidents, the oldest first."""
    table = Table("id", "opened", "by", "about", "roots", "state", "steps")
    for one in Target(redis, tenant, label_key).ask(lambda operator: operator.listed()):
        about = ", ".join(f"{name} {value}" for name, value in one.selectors.items())
        steps = ", ".join(f"{step.number} {step.kind} {step.state}" for step in one.steps)
        cells = (one.id, minute(one.opened_at), one.opened_by, about, str(len(one.roots)))
        table.add_row(*(escape(plain(cell)) for cell in (*cells, one.state, steps)))
    Console(width=160).print(table)


@app.command()
def scope(
    incident: Id,
    redis: Redis,
    as_json: AsJson = False,
    texts: Annotated[
        bool, typer.Option("--texts", help="What each save said, where texts are kept.")
    ] = False,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Show what an incident reached, and what is not known; nothing is changed."""
    target = Target(redis, tenant, label_key)
    graph, found = target.ask(lambda o: o.scope(incident))
    show_scope(graph, found, as_json=as_json)
    if texts and not as_json:
        kept = target.ask(lambda o: o.texts(found))
        for item in (*found.items, *found.sends):
            typer.echo(f"{item.event.node.hex()}: {_excerpt(kept, item.event.node)}")


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
    done = Target(redis, tenant, label_key, audit).act(
        incident,
        "contain",
        lambda o, by: o.contain(incident, now(), by, likely=likely),
        likely=likely,
    )
    _steps(done)
    _, found = Target(redis, tenant, label_key).ask(lambda o: o.scope(incident))
    left = sum(item.reached.tier is Tier.LIKELY for item in found.items)
    if left and not likely:
        typer.echo(f"{left} likely items stay as they are; --likely contains them too")
    typer.echo(f"what can be restored: guard incident repair {plain(incident)}")


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
    target = Target(redis, tenant, label_key, audit)
    _steps(target.act(incident, "undo", lambda o, by: o.undo(incident, step, now(), by), step=step))


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
    target = Target(redis, tenant, label_key, audit)
    _steps(target.act(incident, "release", lambda o, by: o.release(incident, node, now(), by)))


@app.command()
def close(
    incident: Id,
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Close an incident; what it contains stays contained."""
    target = Target(redis, tenant, label_key, audit)
    target.act(incident, "close", lambda o, by: o.close(incident, now(), by))
    typer.echo(f"{plain(incident)} is closed")


@app.command()
def repair(
    incident: Id,
    redis: Redis,
    server: Annotated[
        str, typer.Option(help="URL of the guard's listener in front of the memory; it writes.")
    ] = "",
    secret: Annotated[
        Path | None, typer.Option(help="File: secret of the principal who writes, for --server.")
    ] = None,
    pick: Annotated[
        list[str] | None, typer.Option("--pick", help="ITEM=NODE: what a person has chosen.")
    ] = None,
    window: Annotated[
        int, typer.Option(min=1, help="Events without a follower, to offer a likely item.")
    ] = WINDOW,
    memory: Annotated[
        str,
        typer.Option(help="URL of the memory itself: texts that are not kept are read back there."),
    ] = "",
    listing: Annotated[
        str, typer.Option(help="Its tool that lists items, and arguments: 'TOOL {\"limit\": 9}'.")
    ] = "",
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Show what each contained item can be restored to; with --server, write it.

    What is written goes through the guard like any other write.  What cannot be written stays
    withheld.
    """
    chosen, target = dict(_pair(one) for one in pick or ()), Target(redis, tenant, label_key)
    held = _held(memory, listing)
    found, texts = target.ask(lambda operator: operator.proposals(incident, held))
    done, by = target.ask(lambda operator: operator.incident(incident)).repaired, getpass.getuser()
    with on_record(audit) as log:
        for one in found:
            document, outcome = proposal_document(one), one.action
            if one.contained.hex() in done:
                outcome = "repaired"
            elif server:
                log.event(EVENT, {"incident": incident, "act": "repair", "by": by, **document})
                text = texts, bytes.fromhex(chosen.get(one.item.hex(), ""))
                act = partial(IncidentOperator.repair, identifier=incident, one=one, text=text)
                write = memory_writer(secret)
                outcome = target.ask(partial(act, write=partial(write, server), at=now(), by=by))
            typer.echo(f"item {one.item.hex()}: {outcome}; {one.why}")
            typer.echo(f"  contained: {_excerpt(texts, one.contained)}")
            if one.version is not None:
                typer.echo(f"  last good version: {_excerpt(texts, one.version.node)}")
            for other in one.neighbours:
                label, excerpt = other.label.name.lower(), _excerpt(texts, other.node)
                typer.echo(f"  neighbour {other.node.hex()} ({label}): {excerpt}")
    for event, why in target.ask(lambda o: o.offered(incident, window)):
        typer.echo(f"may be released: {event.node.hex()}; {why}")


def _excerpt(texts: Texts, node: bytes) -> str:
    """Return how the arguments of a save begin, on one line."""
    if node not in texts:
        return "its text is not kept"
    text = plain(json.dumps(texts[node][1], ensure_ascii=False))
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


def _held(memory: str, listing: str) -> Held | None:
    """Return what a memory holds; None where it is not to be asked."""
    if bool(memory) != bool(listing):
        raise InputError("--memory and --listing belong together")
    if not memory:
        return None
    from guard.adapters.mcp_client.store_recall import listed

    tool, _, arguments = listing.partition(" ")
    with given_input():
        given = dict(json.loads(arguments or "{}"))
    return Held(*asyncio.run(listed(memory, tool, given)))


def _pair(text: str) -> tuple[str, str]:
    item, _, node = text.partition("=")
    with given_input():
        bytes.fromhex(item + node)
    if not item or not node:
        raise InputError("--pick is ITEM=NODE, both in hex")
    return item, node


@app.command()
def export(
    incident: Id,
    redis: Redis,
    form: Annotated[str, typer.Option("--format", help="json, csv, stix or graphml.")] = "json",
    out: Annotated[Path | None, typer.Option(help="File; left out, standard output.")] = None,
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Write timeline, scope, actions and gaps as evidence; the JSON is signed.

    Its SHA-256 goes into the audit log, where there is one: so it is known which was the first.
    """
    if form not in FORMATS:
        raise InputError(f"--format is one of {', '.join(FORMATS)}")

    async def made(state: State) -> str:
        operator = IncidentOperator(state.store, state.seal, tenant)
        graph, found = await operator.scope(incident)
        document = document_of(graph, await operator.incident(incident), found)
        if form == "graphml":
            return as_graphml(graph, found)
        if form == "json":
            return as_json(state.seal, document)
        return as_csv(document) if form == "csv" else _stix(document)

    text = act_on(redis, made, label_key=label_key, timeout=SECONDS)
    digest = hashlib.sha256(text.encode()).hexdigest()
    with on_record(audit) as log:
        by = getpass.getuser()
        told = {"incident": incident, "act": "export", "by": by, "format": form, "sha256": digest}
        log.event(EVENT, told)
    if out is None:
        typer.echo(text)
    else:
        out.write_text(text, encoding="utf-8")


def _stix(document: dict[str, Any]) -> str:
    try:
        return as_stix(document)
    except ImportError as error:
        raise InputError("STIX needs the extra `incidents` (package stix2)") from error


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="An exported JSON document.")],
    redis: Redis,
    label_key: Key = None,
) -> None:
    """Check the signature of an exported document; exit code 2 where it does not fit."""

    async def check(state: State) -> bool:
        return is_signed(state.seal, file.read_text(encoding="utf-8"))

    if not act_on(redis, check, label_key=label_key):
        typer.echo("the signature does not fit: it was altered, or is of another guard")
        raise typer.Exit(Code.REFUSED)
    typer.echo("as this guard wrote it")


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
