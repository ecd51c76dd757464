"""``guard memory …``: writes that were held back, partitions, trust, labels and their lineage."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from guard.cli.admin_api import AdminApi, by_api
from guard.cli.graph_memory import audit as audit_selection
from guard.cli.graph_memory import structure
from guard.cli.incident import show_scope
from guard.cli.outcome import Code, given_input, plain
from guard.cli.running import Audit, Key, Redis, State, Tenant, act_on, minute, now, on_record
from guard.cli.terminal import show_table
from guard.core.errors import GuardError, InputError, StateError
from guard.core.mappings import DetectionSettings
from guard.core.memory import Fate
from guard.inference.text_classifier import MODEL, load_classifiers
from guard.operations.approvals import EVENT_FINDING
from guard.operations.detection import Model, Round, Watch
from guard.policy import load_policies
from guard.policy.field_types import duration_seconds
from guard.provenance.imports import LABELS, read_items
from guard.store.staging import Reviewed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from guard.core.mappings import ReadBack


Partition = Annotated[str, typer.Argument(help="The partition, as writes name it.")]
PolicyStore = Annotated[str, typer.Option(help="As the policy names it.")]
What = Annotated[str, typer.Argument(help="An address, a text, or the key of an item.")]
Store = Annotated[str, typer.Option(help="The memory whose item it may name.")]
Reader = Annotated[str, typer.Option(help="Whose untrusted reading to look at.")]
MEMORY: Final = "/api/memory"
COLUMNS: Final = ("kind", "label", "channel", "source", "call", "when")
ITEMS: Final = 5000
"""Items that one request imports."""

app = typer.Typer(
    help="Memory: promote, resolve, review, quarantine, release writes; restore trust; labels.",
    no_args_is_help=True,
)
app.add_typer(structure, name="structure")
app.command("audit")(audit_selection)


@app.command()
@by_api(f"POST {MEMORY}/promote", records=True)
def promote(
    api: AdminApi,
    decision: Annotated[str, typer.Argument(help="Decision id of the refused write.")],
    target: Annotated[str, typer.Option("--class", metavar="L1..L4")] = "",
    expires: Annotated[str, typer.Option(help="How long it may be used, e.g. 15m.")] = "15m",
) -> None:
    """Let exactly this content of this principal into a class, once."""
    body = {"decision": decision, "memory_class": target, "seconds": _seconds(expires)}
    found = api.post(f"{MEMORY}/promote", {"tenant": api.tenant, **body})
    typer.echo(f"class {found['memory_class']} for principal {plain(found['principal'])}, content:")
    typer.echo(found["content"])
    typer.echo(f"the agent's retry is let through once, within {expires}; token {found['token']}")


@app.command()
@by_api(f"GET {MEMORY}")
def review(
    api: AdminApi,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    content: Annotated[
        bool, typer.Option("--content", help="Show the content of each write.")
    ] = False,
) -> None:
    """List refused writes, and those whose fate is not known."""
    columns = ["id", "fate", "reasons", "principal", "tool", "target", "store", "partition"]
    columns += ["content"] if content else []
    writes = api.get(MEMORY, limit=limit)["writes"]
    rows = ([write[name] for name in columns] for write in writes)
    show_table(columns, rows, 1000 if content else 160)


@app.command()
@by_api(f"POST {MEMORY}/quarantine", records=True)
def quarantine(
    api: AdminApi,
    partition: Partition,
    store: PolicyStore = "default",
    reason: Annotated[str, typer.Option(help="Why; it is audited.")] = "",
    ttl: Annotated[str, typer.Option(help="For how long, e.g. 24h.")] = "24h",
) -> None:
    """Close a partition of a store: nothing is written to it until it is released."""
    where = {"tenant": api.tenant, "store": store, "partition": partition}
    api.post(f"{MEMORY}/quarantine", {**where, "reason": reason, "seconds": _seconds(ttl)})
    typer.echo(f"partition {plain(partition)} of {store} is closed for {ttl}")


@app.command()
@by_api(f"POST {MEMORY}/release", records=True)
def release(api: AdminApi, partition: Partition, store: PolicyStore = "default") -> None:
    """Open a quarantined partition again."""
    where = {"tenant": api.tenant, "store": store, "partition": partition}
    api.post(f"{MEMORY}/release", where)
    typer.echo(f"partition {plain(partition)} of {store} is open")


@app.command()
@by_api(f"POST {MEMORY}/trust", records=True)
def restore(
    api: AdminApi,
    kind: Annotated[str, typer.Argument(help="`principal` or `source`.")],
    name: Annotated[str, typer.Argument(help="Which: a principal, a sender or a URL host.")],
    reason: Annotated[str, typer.Option(help="Why; it is audited.")],
) -> None:
    """Trust a source or principal again.  The gate itself only ever lowers trust."""
    body = {"tenant": api.tenant, "kind": kind, "name": name, "reason": reason}
    was = api.post(f"{MEMORY}/trust", body)["was"]
    typer.echo(f"{kind} {plain(name)} was {was}, is TRUSTED")


@app.command()
@by_api(f"GET {MEMORY}")
def drift(api: AdminApi) -> None:
    """List what a principal's committed items were found to push."""
    rows = ([one["principal"], one["subject"]] for one in api.get(MEMORY)["drift"])
    show_table(["principal", "subject"], rows)


@app.command()
@by_api(f"GET {MEMORY}/in-flight", f"POST {MEMORY}/fate", records=True)
def resolve(
    api: AdminApi,
    policy: Annotated[list[Path], typer.Option("--policy", "-p", help="As the guard has it.")],
    server: Annotated[str, typer.Option(help="URL of the memory server's MCP endpoint.")],
    older_than: Annotated[
        float | None, typer.Option(help="Seconds in flight (default: `unknown_after`).")
    ] = None,
) -> None:
    """Read lost writes back from the store: found, abandoned, or reported as unknown.

    Nothing is sent again.  Exit code 2 where the fate of a write stays unknown.
    """
    from guard.runtime.mcp_client.tool_listing import recall
    from guard.store.memory_stores.recovery import fate_of, text_of

    memory = load_policies(policy).memory
    if memory is None:
        raise GuardError("the policy has no `memory` section")
    after = memory.limits.unknown_after if older_than is None else older_than

    async def ask(_: str, read_back: ReadBack, arguments: Mapping[str, Any]) -> str:
        return text_of(await recall(server, read_back.tool, dict(arguments)))

    fates: list[Fate] = []
    for write in api.get(f"{MEMORY}/in-flight", older_than=after)["writes"]:
        found = Reviewed(write["fields"], write["age"])
        fate = asyncio.run(fate_of(found, memory, ask))
        body = {"id": found.id, "fate": fate.value, "seconds": memory.limits.keep_refused}
        api.post(f"{MEMORY}/fate", {"tenant": api.tenant, **body})
        typer.echo(f"{found.id} {fate.value}")
        fates.append(fate)
    if Fate.UNKNOWN in fates:
        raise typer.Exit(Code.REFUSED)


@app.command("accept-loss")
@by_api(f"POST {MEMORY}/accept-loss", records=True)
def accept_loss(
    api: AdminApi, reason: Annotated[str, typer.Option(help="Why; it is audited.")]
) -> None:
    """Count labels as complete again after the store was lost, replaced or rolled back.

    What was read before the loss and not imported since is merely unknown from then on.
    """
    response = api.post(f"{MEMORY}/accept-loss", {"reason": reason})
    until = minute(response["incomplete_until"]).partition(" ")[0]
    typer.echo(
        f"labels were incomplete until {until}, and count as complete for every guard within "
        "ten seconds"
    )


@app.command("import")
@by_api(f"POST {MEMORY}/labels", records=True)
def import_labels(
    api: AdminApi,
    file: Annotated[Path, typer.Argument(help="JSON list of {store, value, label, for}.")],
    label: Annotated[str | None, typer.Option(help="Label of items that name none.")] = None,
) -> None:
    """Label what a memory held before the guard: its values then attest, or taint."""
    if label is not None and label not in LABELS:
        raise InputError(f"--label is one of {', '.join(LABELS)}")
    with given_input():
        read = read_items(file.read_text(encoding="utf-8"), LABELS[label] if label else None)
    items = [
        {"store": one.store, "value": one.text, "label": one.label.name.lower()}
        | ({"for": list(one.services)} if one.services else {})
        for one in read
    ]
    for start in range(0, len(items), ITEMS):
        part = items[start : start + ITEMS]
        api.post(f"{MEMORY}/labels", {"tenant": api.tenant, "items": part})
    typer.echo(f"labelled {len(items)} items")


@app.command("list")
@by_api(f"GET {MEMORY}/labels")
def list_labels(
    api: AdminApi, limit: Annotated[int, typer.Option(min=1, max=100_000)] = 100
) -> None:
    """List the records of a tenant's memories; values are fingerprints, their text is not kept."""
    found = api.get(f"{MEMORY}/labels", limit=limit)["labels"]
    show_table(["fingerprint", *COLUMNS], ([one["mark"][:12], *_cells(one)] for one in found))


@app.command()
@by_api(f"POST {MEMORY}/find")
def show(api: AdminApi, text: What, store: Store = "", principal: Reader = "") -> None:
    """Show the labels of every value in a text."""
    body = {"tenant": api.tenant, "text": text, "store": store, "principal": principal}
    found = api.post(f"{MEMORY}/find", body)["values"].items()
    rows = ([value, *_cells(one)] for value, records in found for one in records)
    show_table(["value", *COLUMNS], rows)


@app.command()
@by_api(f"POST {MEMORY}/trace", f"POST {MEMORY}/reach")
def trace(
    api: AdminApi,
    text: What,
    store: Store = "",
    principal: Reader = "",
    item: Annotated[
        list[str] | None, typer.Option("--item", help="Key of an item, to be named in the tree.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON document.")] = False,
    down: Annotated[
        bool, typer.Option("--down", help="What follows from it, in the propagation graph.")
    ] = False,
    up: Annotated[bool, typer.Option("--up", help="What it follows from, likewise.")] = False,
) -> None:
    """Show the path that the values in a text took, every save of it, as a tree.

    With --down or --up the text is a value, a node in hex, or with --store the key of an item.
    """
    body: dict[str, object] = {"tenant": api.tenant, "text": text, "store": store}
    if down or up:
        show_scope(api.post(f"{MEMORY}/reach", {**body, "up": up}), as_json=as_json)
        return
    response = api.post(f"{MEMORY}/trace", {**body, "principal": principal, "items": item or ()})
    tree = response.pop("tree")
    if as_json:
        typer.echo(json.dumps(response, indent=2))
        return
    root = Tree(_cell(tree[0]))
    _grow(root, tree[1])
    Console(width=140).print(root, soft_wrap=True)


def _grow(branch: Tree, below: Iterable[tuple[str, Any]]) -> None:
    for line, further in below:
        _grow(branch.add(_cell(line)), further)


def _cells(one: dict[str, Any]) -> list[object]:
    label = "altered" if one["altered"] else one["label"]
    return [one["kind"], label, one["channel"], one["source"], one["call"], minute(one["at"])]


def _cell(text: str) -> str:
    """Return a text of others as a table may print it."""
    return escape(plain(text))


def _seconds(text: str) -> int:
    with given_input():
        return duration_seconds(text)


SECONDS: Final = 60.0
PolicyFiles = Annotated[
    list[Path], typer.Option("--policy", "-p", help="As the guard has it; `detection` in it.")
]


@app.command()
def watch(
    policy: PolicyFiles,
    redis: Redis,
    model: Annotated[
        str,
        typer.Option(help="Text classifier of `guard detectors`; needs `propagation.versions`."),
    ] = "",
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Take the saves on record as clean, and count what fires."
        ),
    ] = False,
    label_key: Key = None,
    tenant: Tenant = "default",
    audit: Audit = None,
) -> None:
    """Judge saves after they were committed; no write waits for it.

    `guard run` starts the same by itself, without --model, where its policy has `detection`.  While
    it does not run nothing is found, and scopes say what nobody has looked at.
    """
    settings = _settings(policy)
    texts = None
    if model:
        with given_input():
            found = next((one for one in load_classifiers() if one.name == model), None)
            if found is None:
                raise InputError(f"no classifier `{model}`; add it by `guard detectors add`")
            found.prepare()
        texts = Model(found.entry.files[MODEL], found.probabilities)

    async def look(state: State) -> None:
        watching = Watch(state.store, state.seal, settings, tenant, texts)
        if calibrate:
            found = await watching.calibrate()
            may = found.allows(found.threshold, found.model)
            typer.echo(
                f"fired on {found.fired} of {found.saves} saves; it may "
                f"{'withhold by itself' if may else 'only have people asked'}"
            )
            return
        with on_record(audit) as log:
            while True:
                done = await _round(watching)
                if done is not None:
                    for finding in done.findings:
                        log.event(EVENT_FINDING, {"act": "found", **finding.document()})
                    _tell(done)
                if once and done is None:
                    raise GuardError("the log was not judged")
                if once:
                    return
                await asyncio.sleep(every)

    act_on(redis, look, label_key=label_key, timeout=SECONDS)


async def _round(watching: Watch) -> Round | None:
    try:
        return await watching.round(now())
    except (StateError, OSError) as error:
        # The store comes back or does not; what was saved meanwhile is judged then.
        typer.echo(f"guard: not judged: {error}", err=True)
        return None


def _settings(policy: list[Path]) -> DetectionSettings:
    propagation = load_policies(policy).propagation
    if propagation is None or propagation.detection is None:
        raise InputError("the policy has no `propagation.detection` section")
    return propagation.detection


def _tell(done: Round) -> None:
    if done.findings or done.left_out:
        typer.echo(f"{len(done.findings)} of {done.saves} saves look poisoned")
    if done.left_out:
        typer.echo(f"guard: no room for {done.left_out} findings; clear some", err=True)
    if done.why_asked:
        typer.echo(f"guard: not withheld: {done.why_asked}", err=True)
    for incident in done.contained:
        typer.echo(f"{incident.id}: contained; `guard incident undo {incident.id} 1` takes it back")


@app.command()
@by_api("GET /api/memory/findings", "POST /api/memory/findings/clear", records=True)
def findings(
    api: AdminApi,
    clear: Annotated[
        list[str] | None, typer.Option("--clear", help="A node that a person has looked at.")
    ] = None,
) -> None:
    """List the saves that look poisoned; sends that follow from them are asked about.

    `guard incident open --node NODE` goes on from one; --clear takes one back.
    """
    if clear:
        api.post("/api/memory/findings/clear", {"tenant": api.tenant, "nodes": clear})
    names = ("node", "p", "credibility", "recognised", "follows")
    found = api.get("/api/memory/findings")["findings"]
    show_table(names, ([one[name] for name in names] for one in found), 120)
