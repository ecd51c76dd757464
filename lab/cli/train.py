"""``guard lab train``: fit a classifier on recorded runs and write model, card and manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from guard.cli.outcome import given_input
from guard.cli.terminal import bar, show
from guard.core.errors import InputError
from lab.cli.labelled_runs import (
    OnError,
    OnErrorOption,
    SessionOption,
    ToolsOption,
    Traces,
    WithBenignOption,
    read_runs,
    require_lab,
    roles_of,
    skipping,
)
from lab.dataset import LAST_SESSION, Dataset, Labelling, Reading
from lab.paper import THRESHOLD, TRIGGER_SESSION, FeatureSet

if TYPE_CHECKING:
    from guard.core.model import Json
    from lab.training import Order


def train(
    traces: Traces,
    out: Annotated[Path, typer.Option("--out", help="Directory for model, card and manifest.")],
    features: Annotated[
        FeatureSet,
        typer.Option(
            "--features", help="`signature13` ships: monotone in recalls before a send outside."
        ),
    ] = FeatureSet.SIGNATURE13,
    label: Annotated[
        Labelling,
        typer.Option(
            "--label",
            help="Positive: the trigger session mailed an attacker, or the "
            "run's own `attack_success`.",
        ),
    ] = Labelling.MAILED,
    session: SessionOption = TRIGGER_SESSION,
    tools: ToolsOption = None,
    with_benign: WithBenignOption = False,
    benign: Annotated[
        list[Path] | None,
        typer.Option(
            "--benign", help="Traces without an attack whose first sends the card counts."
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option("--threshold", min=0.0, max=1.0, help="The score that flags.")
    ] = THRESHOLD,
    name: Annotated[
        str | None,
        typer.Option("--name", help="The artefact's name; `prefix-13` is what the guard loads."),
    ] = None,
    on_error: OnErrorOption = OnError.FATAL,
) -> None:
    """Train a model on recorded runs; write NAME.onnx, NAME.card.json and manifest.json.

    The card says what it was trained on, what its threshold costs and how it does on random
    folds and on unseen model x defence cells.  The export is
    written only if it scores every row like scikit-learn's model, to 1e-5.

    Exit code 0: written; 1: failed; 3: a trace is invalid, or the runs hold one class only.
    """
    console = Console(stderr=True, highlight=False, markup=False)
    require_lab()
    from lab.training import Order

    order = Order(features, label, session, threshold, name)
    _check_name(order)
    reading = Reading(label, session, with_benign, roles_of(tools), skipping(console, on_error))
    data = read_runs(traces, reading, console)
    harmless = _read_benign(benign, reading, console)
    card = _train(console, order, (data, harmless), out)
    _describe(console, card, out)


def _check_name(order: Order) -> None:
    name = order.artefact_name
    if not name or not all(c.isascii() and (c.isalnum() or c in "-_") for c in name):
        raise InputError(f"`{name}` is no artefact name, use letters, digits, `-` and `_`")


def _read_benign(paths: list[Path] | None, reading: Reading, console: Console) -> Dataset | None:
    if not paths:
        return None
    everything = replace(reading, session=LAST_SESSION, with_benign=True)
    return read_runs(paths, everything, console)


def _train(
    console: Console, order: Order, data: tuple[Dataset, Dataset | None], out: Path
) -> dict[str, Json]:
    from lab.protocols import Protocol
    from lab.training import train as fit
    from lab.training import write_artefact

    with bar(console, "training", len(Protocol)) as advance:
        onnx, card = fit(order, *data, advance)
    write_artefact(out, onnx, card)
    return card


def _describe(console: Console, card: dict[str, Json], out: Path) -> None:
    data = card["training_data"]
    table = Table(
        title=f"{card['name']}: {card['model']['type']}, {len(card['features'])} features",
        caption=(
            f"{data['runs']} runs ({data['distinct_runs']} distinct), {data['positive']} positive"
        ),
    )
    table.add_column("protocol")
    for column in ("AUC", "on distinct runs", "recall", "false positives"):
        table.add_column(column, justify="right")
    for protocol, found in card["evaluation"].items():
        if not isinstance(found, dict) or "auc" not in found:
            continue
        row = [
            found["auc"],
            found.get("distinct_runs", found)["auc"],
            found.get("recall_at_threshold"),
            found.get("false_positive_rate_at_threshold"),
        ]
        cells = ["-" if value is None else f"{value:.3f}" for value in row]
        table.add_row(protocol.replace("_", " "), *cells)
    console.print(table)
    for note in data["traps"]:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(f"threshold {card['threshold']['value']}: {card['threshold']['cost']}")
    console.print(f"wrote {out / card['name']}.onnx, its card and {out / 'manifest.json'}")


def train_detector(
    out: Annotated[Path, typer.Option("--out", help="Folder for model, tokenizer and card.")],
    data: Annotated[Path, typer.Option(help="Folder with texts, one file per kind.")] = Path(
        "../shared/data/texts"
    ),
) -> None:
    """Fit the baseline of instructions in texts; evaluate it on sources left out.

    The card has the figures per source.  `guard detectors add OUT --output probability
    --max-length 1000 --stride 200 --threshold T` installs it, with the threshold of the card.

    Exit code 0: written, whatever the figures; 3: the folder lacks a file.
    """
    require_lab()
    from lab import instructions

    with given_input():
        texts = instructions.read_texts(data)
    console = Console(stderr=True)
    with bar(console, "folds", instructions.FOLDS) as progress:
        card = instructions.train(texts, out, progress)
    for name in ("left_out", "patterns"):
        shares = (f"{key} {card[name][key]['value']:.4f}" for key in instructions.IDS.values())
        typer.echo(f"{name}: {', '.join(shares)}")
    typer.echo(f"ships: {'yes' if card['ships'] else 'no'}; threshold {card['threshold']}")
