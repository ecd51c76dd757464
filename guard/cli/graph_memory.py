"""``guard memory structure`` and ``guard memory audit``: the ledger of a graph memory."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from guard.cli.admin_api import AdminApi, by_api
from guard.cli.outcome import given_input
from guard.cli.running import now
from guard.cli.terminal import bar, show_table
from guard.core.errors import GuardError, InputError
from guard.core.mappings import SelectionPolicy
from guard.extensions.graph_memory.audit import Exposure, exposure
from guard.extensions.graph_memory.fit import Fitted, RecordedAnswer, fit
from guard.extensions.graph_memory.grounding import Grounding
from guard.extensions.graph_memory.ledger import (
    Change,
    Ledger,
    Write,
    Writer,
)
from guard.extensions.graph_memory.selectors import selector_from
from guard.extensions.graph_memory.selectors.pagerank import PageRank
from guard.operations.memory import GraphChange
from guard.pipeline.selection_replay import counts, partition_key
from guard.policy import load_policies
from guard.provenance.imports import LABELS

StoreName = Annotated[str, typer.Option("--store", help="As the policy names it.")]
BATCH = 20_000
"""Writes that one request imports, which are sealed as of one call."""
STRUCTURE = "/api/memory/structure"

structure = typer.Typer(
    help="Structure of a graph memory: bring in what was there before, write out what is known.",
    no_args_is_help=True,
)


@structure.command("import")
@by_api(f"POST {STRUCTURE}", records=True)
def import_structure(
    api: AdminApi,
    file: Annotated[Path, typer.Argument(help="JSON lines: change, one, two, relation, …")],
    store: StoreName,
    label: Annotated[str, typer.Option(help="Label of all of it.")] = "untrusted",
    principal: Annotated[str, typer.Option(help="On whose behalf, as a policy names it.")] = "",
) -> None:
    """Put structure that existed before the guard into a store's ledger."""
    with given_input():
        writes = list(read_writes(file.read_text(encoding="utf-8").splitlines()))
    whole = {"tenant": api.tenant, "store": store, "label": label, "principal": principal}
    with bar(Console(stderr=True), "importing", len(writes)) as advance:
        at = now()
        for start in range(0, len(writes), BATCH):
            batch = writes[start : start + BATCH]
            api.post(STRUCTURE, {**whole, "at": at, "part": start, "writes": batch})
            for _ in batch:
                advance()
    typer.echo(f"imported {len(writes)} changes as {label}")


@structure.command("review")
@by_api(f"POST {STRUCTURE}", records=True)
def review_structure(
    api: AdminApi,
    store: StoreName,
    partition: Annotated[str, typer.Option(help="Its name; left out, the whole store.")] = "",
) -> None:
    """Accept the structure that a store derived up to now from content that does not count."""
    if partition and not partition_key(partition):
        raise InputError("a partition has a name with letters or digits; leave it out for all")
    write = {"change": "review", "one": partition_key(partition)}
    whole = {"tenant": api.tenant, "store": store, "label": "authenticated", "principal": ""}
    api.post(STRUCTURE, {**whole, "at": now(), "part": 0, "writes": [write]})
    typer.echo(f"accepted what `{store}` derived up to now")


def read_writes(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the writes of an export or of a hand-made file, in the form of the API.

    Raises:
        InputError: a line is not a change of a graph.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json_text.loads(line)
            given = {name: document[name] for name in GraphChange.model_fields if name in document}
            given["change"] = str(document["change"]).lower()
            yield GraphChange.model_validate(given).model_dump(mode="json")
        except (ValueError, KeyError, TypeError) as error:
            text = str(error).partition("\n")[0]
            message = f"line {number} is not a change of a graph (change, one, two, …): {text}"
            raise InputError(message) from error


@structure.command("export")
@by_api(f"GET {STRUCTURE}")
def export_structure(api: AdminApi, store: StoreName) -> None:
    """Write a store's ledger to standard output: one JSON line per change, with its writer."""
    *lines, last = api.get(STRUCTURE, store=store)
    for line in lines:
        typer.echo(line)
    if faults := json_text.loads(last)["faults"]:
        raise GuardError(f"the ledger has a gap: {faults} entries were altered or repeated")


@by_api(f"GET {STRUCTURE}")
def audit(
    api: AdminApi,
    queries: Annotated[
        Path,
        typer.Argument(help="One query per line, which names nodes; with --fit JSON lines."),
    ],
    store: StoreName,
    policy: Annotated[Path | None, typer.Option(help="Audit the part that counts by it.")] = None,
    entities_only: Annotated[
        bool, typer.Option("--entities-only", help="A stranger joins entities, no item.")
    ] = False,
    fits: Annotated[
        bool,
        typer.Option(
            "--fit",
            help="Find the store's selector and parameters from recorded answers: `query` (or "
            "`seeds`), `items` and, where content ranks, `lists` in each line.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count, per query, the foreign edges that change the first item of PageRank.

    With --fit find the parameters of the store's selector instead.
    """
    selection = _selection(policy, store)
    ledger = Ledger(lambda write: selection is None or counts(selection, write))
    *lines, last = api.get(STRUCTURE, store=store)
    with bar(Console(stderr=True), "reading", len(lines)) as advance:
        for line in lines:
            ledger.extend((_write(json_text.loads(line)),))
            advance()
    faults = json_text.loads(last)["faults"]
    texts = [line for line in queries.read_text(encoding="utf-8").splitlines() if line.strip()]
    if fits:
        _show_fits(store, fitted(ledger, texts), as_json=json)
        return
    selector = _pagerank(selection)
    found: list[tuple[str, Exposure | None]] = []
    with given_input(), bar(Console(stderr=True), "auditing", len(texts)) as advance:
        for text in texts:
            found.append((text, audited(ledger, text, selector, entities_only=entities_only)))
            advance()
    if json:
        rows = [{"query": t, **_document(ledger, seen)} for t, seen in found]
        typer.echo(json_text.dumps({"store": store, "faults": faults, "queries": rows}))
    else:
        _show(ledger, found)


def fitted(ledger: Ledger, lines: Sequence[str]) -> list[Fitted]:
    """Return the selectors and parameters that give recorded answers, the most faithful first.

    Raises:
        InputError: a line is not an answer, or names an item that the ledger lacks.
    """
    answers: list[RecordedAnswer] = []
    for number, line in enumerate(lines, 1):
        try:
            given = json_text.loads(line)
            texts = tuple(given["seeds"]) if "seeds" in given else (given["query"],)
            served = tuple(_number(ledger, name) for name in given["items"])
            lists = [tuple(_number(ledger, name) for name in one) for one in given.get("lists", ())]
            grounding = Grounding(ledger, texts, in_text="seeds" not in given)
            recall = replace(grounding.recall(len(served), ledger.root), lists=tuple(lists))
        except (ValueError, KeyError, TypeError) as error:
            message = f"line {number} is not an answer (query or seeds, items, lists): {error}"
            raise InputError(message) from error
        answers.append(RecordedAnswer(recall, served))
    if not answers:
        raise InputError("the file has no recorded answer")
    return fit(ledger.full, answers)


def _number(ledger: Ledger, name: str) -> int:
    number = ledger.number(name)
    if number is None:
        raise ValueError(f"`{name}` is not in the ledger")
    return ledger.root(number)


def _show_fits(store: str, found: Sequence[Fitted], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json_text.dumps({"store": store, "fits": [asdict(one) for one in found]}))
        return
    rows = ((one.selector, one.parameters, f"{one.fidelity:.3f}", one.answers) for one in found)
    show_table(("selector", "parameters", "fidelity", "answers"), rows, 120)
    best = found[0]
    words = ", ".join(
        f"{name}: {json_text.dumps(value)}"
        for name, value in {"selector": best.selector, **best.parameters}.items()
    )
    typer.echo(f"selection: {{{words}}}  # agrees with {best.fidelity:.1%} of {best.answers}")


def _pagerank(selection: SelectionPolicy | None) -> PageRank:
    """Return the walk of a policy, whose bounds the audit works out.

    Raises:
        InputError: it is directed, or another that no bound holds for.
    """
    given = dict(selection.parameters) if selection and selection.selector == "pagerank" else {}
    made = selector_from("pagerank", given)
    if not isinstance(made, PageRank) or not made.is_certifiable:
        raise InputError("the audit's bounds hold for an undirected walk from its seeds alone")
    return made


def audited(
    ledger: Ledger, text: str, selector: PageRank, *, entities_only: bool
) -> Exposure | None:
    """Return the exposure of one query on the structure that counts, None for one without."""

    def root(node: int) -> int:
        return ledger.root(node, authentic=True)

    try:
        recall = Grounding(ledger, (text,), in_text=True).recall(5, root, ledger.is_authentic)
        return exposure(selector, ledger.authentic, recall, entities_only=entities_only)
    except ValueError:
        return None


def _document(ledger: Ledger, seen: Exposure | None) -> dict[str, Any]:
    if seen is None:
        return {"reason": "it names no node, or the graph cannot be ranked"}
    towards = None if seen.towards is None else ledger.names[seen.towards]
    return {**asdict(seen), "first": ledger.names[seen.first], "towards": towards}


def _show(ledger: Ledger, found: Sequence[tuple[str, Exposure | None]]) -> None:
    columns = ("first", "floor", "capture", "margin", "immune", "flipped", "towards")
    rows = []
    for text, seen in found:
        if seen is None:
            rows.append([text, "not ranked"])
            continue
        shown = _document(ledger, seen)
        rounded = {name: f"{shown[name]:.5f}" for name in ("floor", "capture", "margin")}
        rows.append([text, *({**shown, **rounded}[name] for name in columns)])
    show_table(("query", *columns), rows)


def _selection(policy: Path | None, store: str) -> SelectionPolicy | None:
    if policy is None:
        return None
    found = load_policies([policy]).selections.get(store)
    if found is None:
        raise InputError(f"the policy has no `selection` for the store `{store}`")
    return found


def _write(fields: dict[str, Any]) -> Write:
    """Return a change as the API tells it."""
    writer = Writer(
        fields["principal"],
        bytes.fromhex(fields["session"]),
        fields["call"],
        fields["at"],
        fields["source"],
        LABELS[fields["label"]],
    )
    change, parents = Change[fields["change"].upper()], tuple(fields["parents"])
    names = fields["one"], fields["two"], fields["relation"]
    return Write(change, *names, fields["weight"], fields["item"], writer, parents)
