"""``guard incident …``: a poisoned memory item: what it reached, contain it, repair it, undo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape

from guard.cli.admin_api import AdminApi, NotDoneError, by_api
from guard.cli.outcome import Code, given_input, plain
from guard.cli.running import minute, moment
from guard.cli.terminal import show_table
from guard.core.errors import InputError

_COLUMNS: Final = (
    *("node", "tier", "hops", "R", "what", "store", "tool", "call", "session", "when"),
)
EXCERPT: Final = 100
"""Characters of a kept text that are shown."""
INCIDENTS: Final = "/api/incidents"
ONE: Final = "/api/incidents/{tenant}/{incident}"
Id = Annotated[str, typer.Argument(help="Id of the incident, as `guard incident list` shows it.")]
Act = Annotated[str, typer.Argument(help="Id of the act that waits for a second person.")]
AsJson = Annotated[bool, typer.Option("--json", help="As one JSON document.")]

app = typer.Typer(
    help="A poisoned memory item: open, scope, contain, repair, undo, close, export.",
    no_args_is_help=True,
)


@app.command("open")
@by_api(f"POST {INCIDENTS}", records=True)
def open_incident(
    api: AdminApi,
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
) -> None:
    """Open an incident from an item, value, source, server, principal, session or time."""
    if bool(item) != bool(store):
        raise InputError("--item and --store belong together")
    if session and not principal:
        raise InputError("--session is one of a --principal")
    named = {"node": node, "item": item, "store": store, "value": value, "source": source}
    named |= {"server": server, "principal": principal, "session": session, "note": note}
    times = {"since": _moment(since), "until": _moment(until)}
    response = api.post(INCIDENTS, {"tenant": api.tenant, **named, **times})
    typer.echo(f"{response['incident']}: opened from {response['roots']} events")
    typer.echo(f"see what they reached: guard incident scope {response['incident']}")


@app.command("list")
@by_api(f"GET {INCIDENTS}")
def list_incidents(api: AdminApi) -> None:
    """List the incidents, the oldest first."""
    rows = []
    for one in reversed(api.get(INCIDENTS)["incidents"]):
        about = ", ".join(f"{name} {value}" for name, value in one["selectors"].items())
        done = ((step["number"], step["kind"], step["state"]) for step in one["steps"])
        steps = ", ".join(f"{number} {kind} {state}" for number, kind, state in done)
        cells = [one["id"], minute(one["opened_at"]), one["opened_by"], about]
        cells += [str(len(one["roots"])), one["state"], steps]
        rows.append(cells)
    show_table(["id", "opened", "by", "about", "roots", "state", "steps"], rows)


@app.command()
@by_api(f"GET {ONE}", f"GET {ONE}/texts")
def scope(
    api: AdminApi,
    incident: Id,
    as_json: AsJson = False,
    texts: Annotated[
        bool, typer.Option("--texts", help="Texts of the saves, if they are kept.")
    ] = False,
) -> None:
    """Show what an incident reached, and what is not known; nothing is changed."""
    found = api.get(ONE, incident=incident)["scope"]
    show_scope(found, as_json=as_json)
    if texts and not as_json:
        kept = api.get(f"{ONE}/texts", incident=incident)["texts"]
        for item in (*found["items"], *found["sends"]):
            typer.echo(f"{item['node']}: {_excerpt(kept, item['node'])}")


@app.command()
@by_api(f"POST {ONE}", f"GET {ONE}", f"GET {ONE}/exposed", records=True)
def contain(
    api: AdminApi,
    incident: Id,
    likely: Annotated[
        bool, typer.Option("--likely", help="Likely items too, not the confirmed ones only.")
    ] = False,
    exposed: Annotated[
        bool,
        typer.Option(
            "--exposed",
            help="Whatever was saved after a recall of a contained item too; a preview without "
            "--yes.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --exposed: do it.")] = False,
) -> None:
    """Withhold what was reached from every recall, and lower what followed from it."""
    if exposed and not yes:
        found = api.get(f"{ONE}/exposed", incident=incident)
        show_table(_COLUMNS, map(_cells, found["items"]), 140)
        count = len(found["items"])
        typer.echo(f"would contain {count} more of {found['saves']} saves; --yes contains them")
        return
    tier = "contain_exposed" if exposed else "contain_likely"
    _act(api, incident, act=tier if exposed or likely else "contain")
    left = api.get(ONE, incident=incident)["scope"]["counts"]["likely"]
    if left and not (likely or exposed):
        typer.echo(f"{left} likely items stay as they are; --likely contains them too")
    typer.echo(f"what can be restored: guard incident repair {plain(incident)}")


@app.command()
@by_api(f"POST {ONE}", records=True)
def undo(
    api: AdminApi,
    incident: Id,
    step: Annotated[int, typer.Argument(help="Number of the step.")],
) -> None:
    """Take one step back: every field is as it was before."""
    _act(api, incident, act="undo", step=step)


@app.command()
@by_api(f"POST {ONE}", records=True)
def release(
    api: AdminApi,
    incident: Id,
    node: Annotated[list[str], typer.Argument(help="Nodes that were cleared.")],
) -> None:
    """Let contained items that were cleared be recalled again."""
    _act(api, incident, act="release", nodes=node)


@app.command()
@by_api(f"POST {ONE}", records=True)
def close(api: AdminApi, incident: Id) -> None:
    """Close an incident; what it contains stays contained."""
    api.post(ONE, {"act": "close"}, incident=incident)
    typer.echo(f"{plain(incident)} is closed")


@app.command()
@by_api(f"POST {ONE}/second", records=True)
def agree(api: AdminApi, incident: Id, act: Act) -> None:
    """Agree to what somebody else wants (`approvals: {incidents: two_people}`); it is then done."""
    done = api.post(f"{ONE}/second", {"id": act}, incident=incident)
    if done["outcome"]:
        typer.echo(done["outcome"])
    _steps(done["steps"])


@app.command()
@by_api(f"POST {ONE}/withdraw", records=True)
def withdraw(api: AdminApi, incident: Id, act: Act) -> None:
    """Take back what waits for a second person."""
    api.post(f"{ONE}/withdraw", {"id": act}, incident=incident)
    typer.echo("withdrawn")


@app.command()
@by_api(f"GET {ONE}/repair", f"POST {ONE}", records=True)
def repair(
    api: AdminApi,
    incident: Id,
    server: Annotated[
        str, typer.Option(help="URL of the guard's listener in front of the memory; it writes.")
    ] = "",
    writer: Annotated[
        Path | None,
        typer.Option(
            "--as", help="File: secret of the principal who writes; a console has its own."
        ),
    ] = None,
    pick: Annotated[
        list[str] | None, typer.Option("--pick", help="ITEM=NODE: the text that a person chose.")
    ] = None,
) -> None:
    """Show what each contained item can be restored to; with --server, write it.

    What is written goes through the guard like any other write.  What cannot be written stays
    withheld.
    """
    chosen = dict(_pair(one) for one in pick or ())
    writing = api.writing(server, writer)
    found = api.get(f"{ONE}/repair", incident=incident)
    texts = found["texts"]
    for one in found["proposals"]:
        outcome = one["action"]
        if one["contained"] in found["repaired"]:
            outcome = "repaired"
        elif server:
            given = {"item": one["item"], "pick": chosen.get(one["item"], ""), "server": server}
            outcome = _repaired(writing, incident, given)
        typer.echo(f"item {one['item']}: {outcome}; {one['why']}")
        typer.echo(f"  contained: {_excerpt(texts, one['contained'])}")
        if one["version"] is not None:
            typer.echo(f"  last good version: {_excerpt(texts, one['version'])}")
        for other in one["neighbours"]:
            excerpt = _excerpt(texts, other["node"])
            typer.echo(f"  neighbour {other['node']} ({other['label']}): {excerpt}")
    for one in found["offered"]:
        typer.echo(f"may be released: {one['node']}; {one['why']}")
    for one in found["wanted"]:
        typer.echo(f"waits for a second person: {one['id']} ({one['act']}), by {plain(one['by'])}")


def _act(api: AdminApi, incident: str, **given: object) -> None:
    """Do an act and show the steps, or say that it waits for a second person."""
    done = api.post(ONE, given, incident=incident)
    if done["done"]:
        _steps(done["steps"])
    else:
        how = f"guard incident agree {plain(incident)} {done['wanted']}"
        typer.echo(f"a second person has to agree: {how}")


def _repaired(api: AdminApi, incident: str, given: dict[str, Any]) -> str:
    """Write a text in the place of a contained item; return what came of it."""
    try:
        done = api.post(ONE, {"act": "repair", **given}, incident=incident)
    except NotDoneError as error:
        return str(error)
    return str(done["outcome"]) if done["done"] else f"waits as {done['wanted']}"


def _excerpt(texts: dict[str, Any], node: str) -> str:
    """Return how the arguments of a save begin, on one line."""
    if node not in texts:
        return "its text is not kept"
    text = plain(json.dumps(texts[node], ensure_ascii=False))
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


def _pair(text: str) -> tuple[str, str]:
    item, _, node = text.partition("=")
    with given_input():
        bytes.fromhex(item + node)
    if not item or not node:
        raise InputError("--pick is ITEM=NODE, both in hex")
    return item, node


@app.command()
@by_api(f"POST {ONE}/export", records=True)
def export(
    api: AdminApi,
    incident: Id,
    form: Annotated[str, typer.Option("--format", help="json or stix.")] = "json",
    out: Annotated[Path | None, typer.Option(help="File; left out, standard output.")] = None,
) -> None:
    """Write timeline, scope, actions and gaps as evidence; the JSON is signed.

    Its SHA-256 goes into the audit log: so it is known which was the first.
    """
    text = api.post(f"{ONE}/export", {"format": form}, incident=incident)["text"]
    if out is None:
        typer.echo(text)
    else:
        out.write_text(text, encoding="utf-8", newline="")


@app.command()
@by_api(f"POST {INCIDENTS}/verify")
def verify(
    api: AdminApi, file: Annotated[Path, typer.Argument(help="An exported JSON document.")]
) -> None:
    """Check the signature of an exported document; exit code 2 where it does not fit."""
    text = file.read_text(encoding="utf-8")
    if not api.post(f"{INCIDENTS}/verify", {"text": text})["as_written"]:
        typer.echo("the signature does not fit: it was altered, or is of another guard")
        raise typer.Exit(Code.REFUSED)
    typer.echo("as this guard wrote it")


def show_scope(found: dict[str, Any], *, as_json: bool) -> None:
    """Print a scope: as JSON, or as tables."""
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console, counts = Console(width=140), found["counts"]
    console.print(", ".join(f"{count} {name}" for name, count in counts.items()))
    console.print(
        f"depth {found['depth']} hops, mean {found['mean_hops']:.2f}; "
        f"{found['coverage']:.1%} of the items since the first"
    )
    show_table(_COLUMNS, map(_cells, (*found["items"], *found["sends"])), 140)
    for event in found["root_cause"]:
        console.print(
            f"root cause: {event['node']} by {escape(plain(event['tool']))}; its session had read "
            f"call {event['read_in_call']} "
            f"({escape(plain(event['read_by_tool'])) or 'nothing untrusted'})"
        )
    if found["cut"] is not None:
        console.print(f"it would not have left without: {', '.join(found['cut'])}")
    for name, count in found["unknown"].items():
        console.print(f"[bold]not known[/bold]: {count} {name.replace('_', ' ')}")


def _cells(item: dict[str, Any]) -> list[str]:
    return [
        item["node"],
        item["tier"],
        str(item["hops"]),
        f"{item['r']:.2f}",
        item["what"],
        item["store"],
        item["tool"],
        str(item["call"]),
        item["session"][:8],
        minute(item["at"]),
    ]


def _steps(steps: list[dict[str, Any]]) -> None:
    for step in steps:
        changes = ", ".join(f"{count} {part}" for part, count in step["changes"].items())
        left = step["conflicts"]
        conflicts = f"; {left} changed by others, left alone" if left else ""
        typer.echo(f"step {step['number']} {step['kind']} {step['state']}: {changes}{conflicts}")
    if not steps:
        typer.echo("nothing is left to contain")


def _moment(text: str) -> float:
    if not text:
        return 0.0
    with given_input():
        return moment(text)
