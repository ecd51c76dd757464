"""``guard eval classifier``: the classifiers and the rule on labelled runs, by protocol."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from guard.adapters.onnx import load_models
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.cli.detectors import shipped_detectors
from guard.cli.labelled_runs import (
    EXIT_FAILED,
    EXIT_INVALID,
    OnError,
    OnErrorOption,
    SessionOption,
    ToolsOption,
    Traces,
    read_runs,
    require_lab,
    roles_of,
    skipping,
)
from guard.cli.progress import Bar
from guard.cli.report_table import show
from guard.core.errors import GuardError, ModelError, PolicyError
from guard.lab.dataset import Labelling, Reading
from guard.lab.paper import THRESHOLD, TRIGGER_SESSION
from guard.policy_files import load_policies
from guard.replay.reports import Check, Report, machine
from guard.replay.run import Replay, fresh_store
from guard.replay.traces import TraceError, locate_runs
from guard.settings import policies_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.policy import Policy
    from guard.lab.dataset import Dataset
    from guard.lab.eval_classifier import Measured, Options

NAME: Final = "classifier"
REPLAYED: Final = 250
"""Runs that are replayed for the speed, at most."""


def classifier(
    traces: Traces,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write a self-contained HTML report here.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Write the plots as PNG into this directory.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Policy to replay; the shipped one if unset.")
    ] = None,
    label: Annotated[
        Labelling,
        typer.Option(
            "--label",
            help="Positive: the run's own label, as in the published figures, "
            "or a send of the trigger session to an attacker.",
        ),
    ] = Labelling.SUCCESS,
    session: SessionOption = TRIGGER_SESSION,
    tools: ToolsOption = None,
    there: Annotated[
        list[Path] | None,
        typer.Option("--there", help="Other traces: fit on TRACES, test on these as well."),
    ] = None,
    frozen: Annotated[
        Path | None,
        typer.Option("--frozen", help="Models directory whose artefacts are scored on TRACES."),
    ] = None,
    threshold: Annotated[
        float, typer.Option("--threshold", min=0.0, max=1.0, help="The score that flags.")
    ] = THRESHOLD,
    full: Annotated[
        bool,
        typer.Option("--full", help="Everything, as --report and --plots do: some minutes."),
    ] = False,
    on_error: OnErrorOption = OnError.FATAL,
) -> None:
    """Test the recall-before-send rule and classifiers on labelled runs, and time a replay.

    Forests on 19 and 13 features: random folds and unseen model x defence cells, raw and on
    distinct runs, with BCa intervals; the ONNX exports of forest, boosting and regression against
    scikit-learn on every row. With --full also: boosting and regression by the same folds, a
    model or a defence left out, ablations, and transfer between agents.

    Exit code 0: measured, whatever the figures; 1: failed; 3: a trace, policy or model is
    invalid, or the runs hold one class only (the object is printed with nulls and reasons).
    """
    console = Console(stderr=True, highlight=False, markup=False)
    require_lab(console)
    from guard.lab.eval_classifier import Options

    quick = not (full or report is not None or plots is not None)
    options = Options(label, session, threshold, quick)
    try:
        judged = load_policies([policy or policies_directory() / "default.yaml"])
        skip = skipping(console, on_error)
        reading = Reading(label, session, roles=roles_of(tools), skip=skip)
        data = read_runs(traces, reading, console)
        elsewhere = {
            path.name: read_runs([path], _elsewhere(reading), console) for path in there or ()
        }
        measured = _measure(console, data, options, (elsewhere, frozen))
        speed = _replay_speed(console, judged, traces, skip is not None)
        result = _report(data, measured, speed)
        _write(result, measured, report, plots)
    except (TraceError, PolicyError, ModelError) as error:
        console.print(str(error), soft_wrap=True)
        raise typer.Exit(EXIT_INVALID) from None
    except (GuardError, OSError) as error:
        console.print(f"the evaluation failed: {error}", soft_wrap=True)
        raise typer.Exit(EXIT_FAILED) from None
    show(result, command="guard eval", as_json=json)
    if measured.reason is not None:
        console.print(measured.reason, soft_wrap=True)
        raise typer.Exit(EXIT_INVALID)
    if not json:
        for note in data_notes(measured):
            console.print(f"note: {note}", soft_wrap=True)


def data_notes(measured: Measured) -> list[str]:
    """Return what a reader of the figures must know of the data."""
    notes: list[str] = measured.details["traps"]
    return notes


def _elsewhere(reading: Reading) -> Reading:
    """Return how other traces are read: their runs without an attack are negatives."""
    return replace(reading, with_benign=True)


def _measure(
    console: Console,
    data: Dataset,
    options: Options,
    others: tuple[dict[str, Dataset], Path | None],
) -> Measured:
    from guard.lab.eval_classifier import eval_classifier, measure_there, score_frozen

    elsewhere, frozen = others
    # First: a models directory that cannot be used must not cost a minute to find out.
    artefacts = load_models(frozen) if frozen is not None else {}
    scored = score_frozen(artefacts, data, options.labelling, options.threshold)
    with Bar(console, "evaluating", options.steps) as advance:
        measured = eval_classifier(data, options, advance)
    if frozen is not None:
        measured.details["frozen"] = scored
    if elsewhere and measured.reason is None:
        section = measured.details.setdefault("train_here_test_there", {"between_agent_models": {}})
        section["elsewhere"] = measure_there(data, elsewhere, options)
    return measured


def _replay_speed(console: Console, policy: Policy, traces: list[Path], skip: bool) -> Check:
    """Return how many recorded runs per second the guard judges, state store included."""
    ignore: Callable[[TraceError], object] | None = (lambda _: None) if skip else None
    read = [located.run for located in locate_runs(traces, ignore)]
    # Evenly spaced: runs of one agent lie together, and some are much longer than others.
    runs = read[:: -(-len(read) // REPLAYED) or 1]
    name = "policy_replay_runs_per_second"
    if not runs:
        return Check(id=name, value=None, unit="runs/s", n=0, reason="there is no run to replay")

    async def replay(url: str) -> float:
        async with fresh_store(url, policy.limits) as store:
            engine = Replay(policy, store, shipped_detectors(None))
            started = time.perf_counter()
            with Bar(console, "replaying", len(runs)) as advance:
                await engine.run(runs, lambda _: None, advance)
            return time.perf_counter() - started

    with EmbeddedRedis() as redis:
        seconds = asyncio.run(replay(redis.url))
    return Check(id=name, value=round(len(runs) / seconds, 1), unit="runs/s", n=len(runs))


def _report(data: Dataset, measured: Measured, speed: Check) -> Report:
    from guard.lab.eval_classifier import checks

    return Report(
        name=NAME,
        machine=machine(),
        checks=[*checks(measured, len(data)), speed],
        details=measured.details,
    )


def _write(result: Report, measured: Measured, report: Path | None, plots: Path | None) -> None:
    if report is None and plots is None:
        return
    from guard.lab.plots import draw_classifier, render

    models = measured.details.get("models", {})
    images = draw_classifier(
        measured.curves, {name: model["importances"] for name, model in models.items()}
    )
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for name, image in images.items():
            (plots / f"{name}.png").write_bytes(image)
    if report is not None:
        report.write_text(render(result, images, measured.reason), encoding="utf-8")
