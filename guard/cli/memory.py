"""``guard memory …``: writes that were held back, partitions, trust, labels and their lineage."""

from __future__ import annotations

import getpass
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from guard.adapters.redis.gate_operator import GateOperator
from guard.adapters.redis.incidents import Given, IncidentOperator
from guard.cli.detection import findings, watch
from guard.cli.graph_memory import audit as audit_selection
from guard.cli.graph_memory import structure
from guard.cli.incident import show_scope
from guard.cli.lineage import as_json_document, as_tree
from guard.cli.outcome import Code, given_input, plain
from guard.cli.running import (
    Audit,
    Key,
    Redis,
    State,
    Tenant,
    act_on,
    label_operator,
    minute,
    now,
    on_record,
)
from guard.core.errors import GuardError, InputError
from guard.core.memory import Fate, MemoryClass, Trust
from guard.core.model import Identity
from guard.policy_files import load_policies
from guard.policy_files.field_types import duration_seconds
from guard.propagation.scope import scope_of, select
from guard.provenance.imports import LABELS, read_items

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from guard.adapters.redis.operators import LabelEntry, LabelTrace
    from guard.core.mappings import ReadBack
    from guard.propagation.graph import Graph
    from guard.propagation.scope import Scope
    from guard.provenance.seal import Seal

ResultT = TypeVar("ResultT")
Partition = Annotated[str, typer.Argument(help="The partition, as writes name it.")]
PolicyStore = Annotated[str, typer.Option(help="As the policy names it.")]
What = Annotated[str, typer.Argument(help="An address, a text, or the key of an item.")]
Store = Annotated[str, typer.Option(help="The memory whose item it may name.")]
Reader = Annotated[str, typer.Option(help="Whose untrusted reading to look at.")]
RECALL_SECONDS = 15.0

app = typer.Typer(
    help="Memory: promote, resolve, review, quarantine, release writes; restore trust; labels.",
    no_args_is_help=True,
)
app.add_typer(structure, name="structure")
app.command("audit")(audit_selection)
app.command("watch")(watch)
app.command("findings")(findings)


def _gate(redis: str, tenant: str, act: Callable[[GateOperator], Awaitable[ResultT]]) -> ResultT:
    """Let an operator act on the memory gate's state."""
    return act_on(redis, lambda state: act(GateOperator(state.store.client, tenant=tenant)))


@app.command()
def promote(
    decision: Annotated[str, typer.Argument(help="Decision id of the refused write.")],
    redis: Redis,
    target: Annotated[
        MemoryClass | None,
        typer.Option("--class", parser=MemoryClass.__getitem__, metavar="L1..L4"),
    ] = None,
    expires: Annotated[str, typer.Option(help="How long it may be used, e.g. 15m.")] = "15m",
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Let exactly this content of this principal into a class, once."""
    seconds, by = _seconds(expires), getpass.getuser()

    async def issue(state: State) -> tuple[str, dict[str, str]]:
        operator = GateOperator(state.store.client, tenant=tenant)
        fields = (await operator.candidate(decision)).fields
        wanted = target or MemoryClass[fields["target"]]
        token = await operator.promote(decision, wanted, seconds, by, state.seal)
        return token, {**fields, "target": wanted.name}

    with on_record(audit) as log:
        token, fields = act_on(redis, issue, label_key=label_key)
        shown = {"decision_id": decision, "principal": fields["principal"], "by": by}
        log.event("guard.memory_promoted", {**shown, "memory_class": fields["target"]})
    typer.echo(f"class {fields['target']} for principal {fields['principal']}, content:")
    typer.echo(fields.get("content", ""))
    typer.echo(f"the agent's retry is let through once, within {expires}; token {token}")


@app.command()
def review(
    redis: Redis,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    content: Annotated[bool, typer.Option("--content", help="Show what was to be kept.")] = False,
    tenant: Tenant = "default",
) -> None:
    """List refused writes, and those whose fate is not known."""
    columns = ["id", "fate", "reasons", "principal", "tool", "target", "store", "partition"]
    columns += ["content"] if content else []
    table = Table(*columns)
    for item in _gate(redis, tenant, lambda operator: operator.review(limit)):
        table.add_row(*(_cell(item.fields.get(name, "")) for name in columns))
    Console(width=None if content else 160).print(table)


@app.command()
def quarantine(
    partition: Partition,
    redis: Redis,
    store: PolicyStore = "default",
    reason: Annotated[str, typer.Option(help="Why; it is audited.")] = "",
    ttl: Annotated[str, typer.Option(help="For how long, e.g. 24h.")] = "24h",
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Close a partition of a store: nothing is written to it until it is released."""
    seconds = _seconds(ttl)
    with on_record(audit) as log:
        _gate(
            redis, tenant, lambda operator: operator.quarantine(store, partition, reason, seconds)
        )
        log.event("guard.memory_quarantined", {"store": store, "reason": reason, "ttl": ttl})
    typer.echo(f"partition {plain(partition)} of {store} is closed for {ttl}")


@app.command()
def release(
    partition: Partition,
    redis: Redis,
    store: PolicyStore = "default",
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Open a quarantined partition again."""
    with on_record(audit) as log:
        if not _gate(redis, tenant, lambda operator: operator.release(store, partition)):
            raise GuardError(f"partition `{partition}` of `{store}` is not closed")
        log.event("guard.memory_released", {"store": store})
    typer.echo(f"partition {plain(partition)} of {store} is open")


@app.command()
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
        raise InputError("say `principal` or `source`, and give a --reason")
    fields = {"kind": kind, "name": name, "reason": reason, "by": getpass.getuser()}
    with on_record(audit, required=True) as log:
        # The line comes first: trust that nobody recorded must not come back.
        log.event("guard.memory_trust_restored", fields)
    level = _gate(redis, tenant, lambda operator: operator.restore(kind, name))
    typer.echo(f"{kind} {plain(name)} was {Trust(level).name}, is TRUSTED")


@app.command()
def drift(redis: Redis, tenant: Tenant = "default") -> None:
    """List what a principal's committed items were found to push."""
    table = Table("principal", "subject")
    for principal, subject in _gate(redis, tenant, lambda operator: operator.drift()):
        table.add_row(_cell(principal), _cell(subject))
    Console(width=160).print(table)


@app.command()
def resolve(
    policy: Annotated[list[Path], typer.Option("--policy", "-p", help="As the guard has it.")],
    server: Annotated[str, typer.Option(help="URL of the memory server's MCP endpoint.")],
    redis: Redis,
    older_than: Annotated[
        float | None, typer.Option(help="Seconds in flight (default: `unknown_after`).")
    ] = None,
    tenant: Tenant = "default",
) -> None:
    """Read lost writes back from the store: found, abandoned, or reported as unknown.

    Nothing is sent again.  Exit code 2 where the fate of a write stays unknown.
    """
    from guard.adapters.memory_stores.fate_probe import resolve as settle
    from guard.adapters.memory_stores.fate_probe import text_of

    memory = load_policies(policy).memory
    if memory is None:
        raise GuardError("the policy has no `memory` section")
    after = memory.limits.unknown_after if older_than is None else older_than

    async def ask(_: str, read_back: ReadBack, arguments: Mapping[str, Any]) -> str:
        from guard.adapters.mcp_client.store_recall import recall

        return text_of(await recall(server, read_back.tool, dict(arguments)))

    async def settled(state: State) -> list[tuple[str, Fate]]:
        return await settle(GateOperator(state.store.client, tenant=tenant), memory, ask, after)

    found = act_on(redis, settled, timeout=RECALL_SECONDS)
    for identifier, fate in found:
        typer.echo(f"{identifier} {fate.value}")
    if any(fate is Fate.UNKNOWN for _, fate in found):
        raise typer.Exit(Code.REFUSED)


@app.command("accept-loss")
def accept_loss(
    redis: Redis,
    reason: Annotated[str, typer.Option(help="Why; it is audited.")],
    label_key: Key = None,
    audit: Audit = None,
) -> None:
    """Count labels as complete again after the store was lost, replaced or rolled back.

    What was read before the loss and not imported since is merely unknown from then on.
    """
    from guard.adapters.redis import continuity

    if not reason.strip():
        raise InputError("give a --reason")
    with on_record(audit, required=True) as log:
        # The line comes first: a loss that nobody recorded as accepted must not be forgotten.
        log.event("guard.labels_loss_accepted", {"reason": reason, "by": getpass.getuser()})
    lost = act_on(
        redis,
        lambda state: continuity.accept_loss(state.store.client, state.seal),
        label_key=label_key,
    )
    until = minute(lost.incomplete_until).partition(" ")[0]
    typer.echo(
        f"labels were incomplete until {until}, and count as complete for every guard within "
        "ten seconds"
    )


@app.command("import")
def import_labels(
    file: Annotated[Path, typer.Argument(help="JSON list of {store, value, label}.")],
    redis: Redis,
    label: Annotated[str | None, typer.Option(help="Label of items that name none.")] = None,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Label what a memory held before the guard: its values then attest, or taint."""
    if label is not None and label not in LABELS:
        raise InputError(f"--label is one of {', '.join(LABELS)}")
    with given_input():
        items = read_items(file.read_text(encoding="utf-8"), LABELS[label] if label else None)
    act_on(
        redis,
        lambda state: label_operator(state, tenant).import_items(items, now()),
        label_key=label_key,
    )
    typer.echo(f"labelled {len(items)} items")


@app.command("list")
def list_labels(
    redis: Redis,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 100,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """List the records of a tenant's memories; values are fingerprints, their text is not kept."""

    async def collect(state: State) -> list[LabelEntry]:
        found: list[LabelEntry] = []
        async for record in label_operator(state, tenant).listed():
            found.append(record)
            if len(found) >= limit:
                break
        return found

    table = Table("fingerprint", "kind", "label", "channel", "source", "call", "when")
    for found in act_on(redis, collect, label_key=label_key):
        table.add_row(found.mark.hex()[:12], found.kind, *_cells(found))
    Console(width=140).print(table)


@app.command()
def show(
    text: What,
    redis: Redis,
    store: Store = "",
    principal: Reader = "",
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Show the labels of every value in a text."""

    async def look(state: State) -> Mapping[str, list[LabelEntry]]:
        operator = label_operator(state, tenant)
        return await operator.lookup(text, now(), store=store, principal=principal)

    table = Table("value", "kind", "label", "channel", "source", "call", "when")
    for value, records in act_on(redis, look, label_key=label_key).items():
        for record in records:
            table.add_row(_cell(value), record.kind, *_cells(record))
    Console(width=140).print(table)


@app.command()
def trace(
    text: What,
    redis: Redis,
    store: Store = "",
    principal: Reader = "",
    item: Annotated[
        list[str] | None, typer.Option("--item", help="Key of an item, to be named in the tree.")
    ] = None,
    label_key: Key = None,
    tenant: Tenant = "default",
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON document.")] = False,
    down: Annotated[
        bool, typer.Option("--down", help="What follows from it, in the propagation graph.")
    ] = False,
    up: Annotated[bool, typer.Option("--up", help="What it follows from, likewise.")] = False,
) -> None:
    """Show the path that the values in a text took, every save of it, as a tree.

    With --down or --up the text is a value, a node in hex, or with --store the key of an item.
    """
    if down or up:
        graph, scope = _reached((redis, tenant, label_key), text, store, up=up)
        show_scope(graph, scope, as_json=as_json)
        return

    async def look(state: State) -> tuple[Seal, dict[str, LabelTrace]]:
        operator = label_operator(state, tenant)
        return operator.seal, await operator.trace(text, now(), store=store, principal=principal)

    seal, found = act_on(redis, look, label_key=label_key)
    if as_json:
        typer.echo(as_json_document(text, found))
        return
    reader = Identity(principal, "", tenant=tenant)
    tree = as_tree(text, found, seal=seal, keys=(text, *(item or ())), reader=reader)
    Console(width=140).print(tree, soft_wrap=True)


def _reached(
    place: tuple[str, str, Path | None], text: str, store: str, *, up: bool
) -> tuple[Graph, Scope]:
    """Return the graph, and what follows from the saves that a text names or what they do."""
    redis, tenant, label_key = place

    async def look(state: State) -> tuple[Graph, Scope]:
        operator = IncidentOperator(state.store, state.seal, tenant)
        graph = await operator.graph()
        is_node = re.fullmatch(r"[0-9a-f]{16}", text) is not None
        given = Given(node=text) if is_node else Given(value=text)
        roots = select(graph, operator.selector(Given(item=text, store=store) if store else given))
        if not roots:
            raise GuardError("no save on record has that")
        return graph, scope_of(graph, roots, up=up)

    return act_on(redis, look, label_key=label_key, timeout=RECALL_SECONDS)


def _cells(found: LabelEntry) -> tuple[str, str, str, str, str]:
    record = found.record
    label = record.label.name.lower() if record.sealed else "altered"
    return label, record.channel.value, _cell(record.source), str(record.call), minute(record.at)


def _cell(text: str) -> str:
    """Return a text of others as a table may print it."""
    return escape(plain(text))


def _seconds(text: str) -> int:
    with given_input():
        return duration_seconds(text)
