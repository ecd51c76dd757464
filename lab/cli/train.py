"""``guard lab train``: fit a classifier on recorded runs and write model, card and manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from guard.cli.outcome import given_input
from guard.cli.terminal import bar
from lab.cli.labelled_runs import SessionOption, ToolsOption, Traces
from lab.cli.terminal import show
from lab.dataset import LAST_SESSION, Labelling, Reading, load_dataset, roles_of
from lab.paper import TRIGGER_SESSION


def train(
    traces: Traces,
    out: Annotated[Path, typer.Option("--out", help="Directory for model, card and manifest.")],
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
    with_benign: Annotated[
        bool,
        typer.Option(
            "--with-benign",
            help="Use runs without an attack as negatives, by their last session; else they are "
            "left out, as in the paper.",
        ),
    ] = False,
    benign: Annotated[
        list[Path] | None,
        typer.Option(
            "--benign", help="Traces without an attack whose first sends the card counts."
        ),
    ] = None,
) -> None:
    """Train a model on recorded runs; write prefix-13.onnx, its card and manifest.json.

    The card says what it was trained on, what its threshold costs and how it does on random
    folds and on unseen model x defence cells.  The export is
    written only if it scores every row like the fitted model, to 1e-5.

    Exit code 0: written; 1: failed; 3: a trace is invalid, or the runs hold one class only.
    """
    console = Console(stderr=True, highlight=False, markup=False)
    from lab import training
    from lab.protocols import Protocol

    reading = Reading(label, session, with_benign, roles_of(tools))
    data, harmless = load_dataset(traces, reading), None
    if benign:
        everything = replace(reading, session=LAST_SESSION, with_benign=True)
        harmless = load_dataset(benign, everything)
    with bar(console, "training", len(Protocol)) as advance:
        onnx, card = training.train(reading, data, harmless, advance)
    training.write_artefact(out, onnx, card)
    for protocol in Protocol:
        found = card["evaluation"][protocol.value]
        console.print(f"{protocol.value}: AUC {found['auc']} {found.get('reason', '')}".rstrip())
    for note in card["training_data"]["traps"]:
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


def compare_actions(
    data: Annotated[Path, typer.Option(help="Folder with the recorded suites.")] = Path(
        "../shared/data/traces"
    ),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Fit readers of requested actions, and compare them with the vocabulary on groups left out.

    Nothing is written: a trained reader has found fewer actions at the same error.

    Exit code 0: measured, whatever the figures; 3: the folder lacks a file.
    """
    from lab.intent import requests

    with given_input():
        examples = requests.read_examples(data)
    show(requests.compare(examples), as_json=json)
