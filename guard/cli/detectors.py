"""``guard detectors add | list | remove``: text classifiers for `result` rules."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from guard.cli.terminal import show_table
from guard.core.errors import GuardError, InputError
from guard.detectors import discover_detectors
from guard.inference.text_classifier import add_classifier, load_classifiers, remove_classifier
from guard.policy.detector_manifest import read_manifest
from guard.settings import detectors_directory

app = typer.Typer(no_args_is_help=True, help="Text classifiers: add, list, remove.")


@app.command()
def add(
    path: Annotated[Path, typer.Argument(help="Folder with `model.onnx` and `tokenizer.json`.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Name in policies; the folder's if unset.")
    ] = None,
    threshold: Annotated[float, typer.Option(help="Probability that is a finding.")] = 0.5,
    label: Annotated[
        str, typer.Option(help="Output for `instructions`: index, or name in `config.json`.")
    ] = "1",
    output: Annotated[
        str, typer.Option(help="Outputs to probabilities: softmax, sigmoid or probability.")
    ] = "softmax",
    max_length: Annotated[int, typer.Option(help="Tokens of one window.")] = 512,
    stride: Annotated[int, typer.Option(help="Tokens that two windows share.")] = 64,
    max_windows: Annotated[
        int, typer.Option(help="Windows of one result; longer results are withheld.")
    ] = 64,
) -> None:
    """Copy a classifier, pin its files, and try it.

    A policy uses it by its name: `{type: result, effect: block, finds: [NAME]}`.

    Exit code 0: added; 1: the model cannot be used; 3: an option or the folder is invalid.
    """
    name = name or path.resolve().name.lower()
    if name in {found.name for found in discover_detectors()}:
        raise InputError(f"`{name}` is a detector of the guard; use another `--name`")
    options = {
        "threshold": threshold,
        "label": _label(path, label),
        "output": output,
        "max_length": max_length,
        "stride": stride,
        "max_windows": max_windows,
    }
    directory = detectors_directory()
    entry = add_classifier(directory, name, path, options).entry
    digest = entry.files["model.onnx"][:12]
    typer.echo(f"added detector `{name}` (label {entry.label}, sha256 {digest}) to {directory}")


@app.command("list")
def list_detectors(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the added classifiers, and verify their files.

    Exit code 0: each can be used; 1: at least one cannot.
    """
    rows: list[dict[str, Any]] = []
    for found in load_classifiers():
        try:
            found.prepare()
            state = "ready"
        except GuardError as error:
            state = str(error)
        rows.append({"name": found.name, "state": state, **found.entry.model_dump()})
    if json:
        typer.echo(json_module.dumps(rows))
    else:
        columns = ("name", "threshold", "label", "max_windows", "max_length", "state")
        show_table(columns, ([row[name] for name in columns] for row in rows))
    if any(row["state"] != "ready" for row in rows):
        raise typer.Exit(1)


@app.command()
def remove(name: Annotated[str, typer.Argument(help="The detector's name.")]) -> None:
    """Remove a classifier and its files; a policy that names it no longer starts."""
    remove_classifier(detectors_directory(), name)
    left = ", ".join(sorted(read_manifest(detectors_directory())))
    typer.echo(f"removed detector `{name}`; left: {left or 'none'}")


def _label(path: Path, label: str) -> int:
    if label.isdecimal():
        return int(label)
    try:
        names = json_module.loads((path / "config.json").read_bytes())["id2label"]
        return next(int(index) for index, name in names.items() if name == label)
    except (OSError, ValueError, KeyError, AttributeError, StopIteration) as error:
        raise InputError(f"unknown label `{label}`; use its index, e.g. `--label 1`") from error
