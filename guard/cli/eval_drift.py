"""``guard eval drift``: the live score distribution against the one in the model's card."""

from __future__ import annotations

import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from guard.adapters.onnx import load_models
from guard.cli.detectors import Models
from guard.cli.report_table import show
from guard.cli.terminal import plain
from guard.core.errors import GuardError, ModelError
from guard.detectors.prefix_classifier import MODEL
from guard.lab.drift import (
    MetricsError,
    drift_checks,
    drift_details,
    read_card,
    read_metrics,
    since,
)
from guard.replay.reports import Report, machine
from guard.settings import models_directory

EXIT_FAILED: Final = 1
EXIT_INVALID: Final = 3
TIMEOUT: Final = 10.0
LARGEST: Final = 64 * 1024 * 1024
"""Bytes read of a scrape."""


def drift(
    metrics: Annotated[
        str, typer.Option("--metrics", help="URL of the guard's /metrics, or a saved scrape.")
    ],
    model: Annotated[str, typer.Option("--model", help="The model's name.")] = MODEL,
    models: Models = None,
    earlier: Annotated[
        str | None,
        typer.Option("--since", help="An earlier scrape: compare only the scores since then."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare the scores a guard gave with those in its model's card.

    By population stability index, Kolmogorov-Smirnov distance and the share above the card's
    threshold. A moved distribution means that the card's figures no longer speak for this
    traffic: look at what is new before trusting the threshold, and train again.

    Exit code 0: no drift; 1: drift, too few scores, or no answer; 3: metrics or model invalid.
    """
    console = Console(stderr=True, highlight=False, markup=False)
    try:
        directory = models or models_directory()
        if model not in load_models(directory):
            message = f"`{directory}` holds no model `{model}`"
            raise ModelError(message)
        reference = read_card((directory / f"{model}.card.json").read_bytes())
        live = read_metrics(_read(metrics))
        if earlier is not None:
            live = since(read_metrics(_read(earlier)), live)
    except (ModelError, MetricsError, FileNotFoundError, UnicodeDecodeError) as error:
        console.print(plain(str(error)), soft_wrap=True)
        raise typer.Exit(EXIT_INVALID) from None
    except (GuardError, HTTPException, OSError) as error:
        console.print(f"the metrics cannot be read: {plain(str(error))}", soft_wrap=True)
        raise typer.Exit(EXIT_FAILED) from None
    checks, beyond = drift_checks(reference, live)
    details = drift_details(reference, live, beyond)
    report = Report(name="drift", machine=machine(), checks=checks, details=details)
    show(report, command="guard eval", as_json=json)
    for sentence in beyond:
        console.print(f"drift: {sentence}", soft_wrap=True)
    if beyond or any(check.value is None for check in checks):
        raise typer.Exit(EXIT_FAILED)


def _read(source: str) -> str:
    if not source.startswith(("http://", "https://")):
        return Path(source).read_text(encoding="utf-8")
    with urllib.request.urlopen(source, timeout=TIMEOUT) as answer:  # noqa: S310  (http only)
        content: bytes = answer.read(LARGEST)
    return content.decode("utf-8")
