"""``guard lab eval NAME``: how well the guard decides, on recorded and on generated runs."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from guard.adapters.onnx import load_models
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.cli.labelled_runs import (
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
from guard.cli.outcome import Code, given_input
from guard.cli.policy import Models, shipped_detectors
from guard.cli.terminal import bar, counters, show
from guard.core.errors import GuardError, InputError
from guard.detectors.prefix_classifier import MODEL
from guard.lab.dataset import Labelling, Reading
from guard.lab.drift import drift_checks, drift_details, read_card, read_metrics, since
from guard.lab.egress_rewrite import rewritten
from guard.lab.eval_egress import REWRITTEN, TARGET, eval_egress, read_cases
from guard.lab.eval_provenance import Options as ProvenanceOptions
from guard.lab.eval_provenance import eval_provenance
from guard.lab.eval_trust import eval_trust
from guard.lab.honest_requests import eval_honest, honest_requests
from guard.lab.paper import THRESHOLD, TRIGGER_SESSION
from guard.policy_files import load_policies
from guard.replay.reports import Check, Report, machine
from guard.replay.run import Replay, fresh_store
from guard.replay.traces import TraceError, locate_runs
from guard.settings import models_directory, policies_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from guard.core.policy import Policy
    from guard.core.ports import ModelRunner
    from guard.lab.dataset import Dataset
    from guard.lab.eval_classifier import Measured, Options

METRICS_SECONDS: Final = 10.0
LARGEST_SCRAPE: Final = 64 * 1024 * 1024
"""Bytes read of a scrape."""
REPLAYED: Final = 250
"""Runs that are replayed for the speed, at most."""

app = typer.Typer(help="Measure how well the guard decides, on recorded and on generated runs.")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Recorded = Annotated[
    Path | None,
    typer.Option("--data", help="Directory of recorded runs; beside a checkout if unset."),
]
Seed = Annotated[str, typer.Option(help="Seed of the generated runs.")]
Scale = Annotated[float, typer.Option(min=0.01, help="Generated runs per kind, times the default.")]


@app.command()
def provenance(
    json: AsJson = False,
    data: Recorded = None,
    seed: Seed = "0",
    scale: Scale = 1.0,
    rewrite: Annotated[
        str | None,
        typer.Option(help="Tell recorded runs again by this seed: other names, words and shapes."),
    ] = None,
) -> None:
    """Stopped attacks and honest sends flagged, on recorded and on generated runs.

    Exit code 0: measured, whatever the figures; 1: something could not run.
    """
    with counters(Console(stderr=True, highlight=False)) as begin:
        options = ProvenanceOptions(
            data or recorded_beside(), seed=seed, rewrite=rewrite, scale=scale, progress=begin
        )
        report = eval_provenance(options)
    show(report, command="guard lab eval", as_json=json)


@app.command()
def trust(
    json: AsJson = False,
    seed: Seed = "0",
    limit: Annotated[int, typer.Option(min=1, help="Attempts of a class at most.")] = 200,
    full: Annotated[bool, typer.Option("--full", help="Every attempt of every class.")] = False,
    attack: Annotated[
        list[str] | None, typer.Option(help="Play this class of attacks only; may be repeated.")
    ] = None,
    flows: Annotated[bool, typer.Option(help="Play the honest flows as well.")] = True,
) -> None:
    """Generated attacks on the trust model, and honest flows, each on a guard of its own.

    Exit code 0: measured, whatever the figures; 1: something could not run.
    """
    # Here: the other evaluations need no proxy, whose import takes longer than their start.
    from guard.wiring import assemble

    with (
        counters(Console(stderr=True, highlight=False)) as begin,
        EmbeddedRedis() as redis,
    ):
        report = eval_trust(
            assemble,
            redis.url,
            seed=seed,
            limit=None if full else limit,
            only=attack or (),
            flows=flows,
            progress=begin,
        )
    show(report, command="guard lab eval", as_json=json)


def recorded_beside() -> Path | None:
    """Return where a source checkout has the recorded runs beside it, if it has."""
    data = policies_directory().parent.parent / "shared" / "data" / "traces"
    return data if data.is_dir() else None


@app.command()
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
    require_lab()
    from guard.lab.eval_classifier import Options

    quick = not (full or report is not None or plots is not None)
    options = Options(label, session, threshold, quick)
    with given_input():
        judged = load_policies([policy or policies_directory() / "default.yaml"])
        skip = skipping(console, on_error)
        reading = Reading(label, session, roles=roles_of(tools), skip=skip)
        data = read_runs(traces, reading, console)
        elsewhere = {
            path.name: read_runs([path], _elsewhere(reading), console) for path in there or ()
        }
        # Now: a models directory that cannot be used must not cost a minute to find out.
        artefacts = load_models(frozen) if frozen is not None else None
    measured = _measure(console, data, options, (elsewhere, artefacts))
    speed = _replay_speed(console, judged, traces, skip is not None)
    result = _report(data, measured, speed)
    _write(result, measured, report, plots)
    show(result, command="guard lab eval", as_json=json)
    if measured.reason is not None:
        raise InputError(measured.reason)
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
    others: tuple[dict[str, Dataset], Mapping[str, ModelRunner] | None],
) -> Measured:
    from guard.lab.eval_classifier import eval_classifier, measure_there, score_frozen

    elsewhere, artefacts = others
    scored = score_frozen(artefacts or {}, data, options.labelling, options.threshold)
    with bar(console, "evaluating", options.steps) as advance:
        measured = eval_classifier(data, options, advance)
    if artefacts is not None:
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
            with bar(console, "replaying", len(runs)) as advance:
                await engine.run(runs, lambda _: None, advance)
            return time.perf_counter() - started

    with EmbeddedRedis() as redis:
        seconds = asyncio.run(replay(redis.url))
    return Check(id=name, value=round(len(runs) / seconds, 1), unit="runs/s", n=len(runs))


def _report(data: Dataset, measured: Measured, speed: Check) -> Report:
    from guard.lab.eval_classifier import checks

    return Report(
        name="classifier",
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


@app.command()
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
    directory = models or models_directory()
    with given_input():
        if model not in load_models(directory):
            raise InputError(f"`{directory}` holds no model `{model}`")
        reference = read_card((directory / f"{model}.card.json").read_bytes())
    live = read_metrics(_scrape(metrics))
    if earlier is not None:
        live = since(read_metrics(_scrape(earlier)), live)
    checks, beyond = drift_checks(reference, live)
    details = drift_details(reference, live, beyond)
    report = Report(name="drift", machine=machine(), checks=checks, details=details)
    show(report, command="guard lab eval", as_json=json)
    for sentence in beyond:
        console.print(f"drift: {sentence}", soft_wrap=True)
    if beyond or any(check.value is None for check in checks):
        raise typer.Exit(Code.FAILED)


def _scrape(source: str) -> str:
    """Return the text of a scrape; a file that is none is invalid, an address only unreachable."""
    if not source.startswith(("http://", "https://")):
        with given_input():
            return Path(source).read_text(encoding="utf-8")
    try:
        with urllib.request.urlopen(source, timeout=METRICS_SECONDS) as answer:  # noqa: S310  (http)
            content: bytes = answer.read(LARGEST_SCRAPE)
    except (HTTPException, OSError) as error:
        raise GuardError(f"the metrics cannot be read: {error}") from error
    with given_input():
        return content.decode("utf-8")


@app.command()
def instructions(
    json: AsJson = False,
    data: Annotated[Path, typer.Option(help="Folder with texts, one file per kind.")] = Path(
        "../shared/data/texts"
    ),
    detector: Annotated[
        str | None,
        typer.Option(help="Added detector, by name; the patterns if unset."),
    ] = None,
) -> None:
    """Public attacks found, honest pages and tool definitions withheld, by source.

    A detector that was fitted on these texts belongs to `guard lab train detector`, which leaves
    sources out.

    Exit code 0: measured, whatever the figures; 1: the detector fails; 3: a text or it is missing.
    """
    from guard.adapters.text_classifier import load_classifiers
    from guard.lab.instructions import eval_detector, eval_patterns, read_texts

    with given_input():
        texts = read_texts(data)
    found = {one.name: one for one in load_classifiers()}
    if detector is not None and detector not in found:
        raise InputError(f"unknown detector `{detector}`; add it with `guard detectors add`")
    with bar(Console(stderr=True), "texts", len(texts.texts)) as advance:
        report = (
            eval_patterns(texts, advance)
            if detector is None
            else eval_detector(texts, found[detector], advance)
        )
    show(report, command="guard lab eval", as_json=json)


@app.command("egress-bench")
def egress_bench(
    cases: Annotated[
        Path,
        typer.Argument(
            help="Cases of agent-egress-bench; with --benign recorded runs. One per line."
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    policy: Annotated[
        Path | None, typer.Option(help="Policy (default: examples/strict.yaml).")
    ] = None,
    benign: Annotated[
        int, typer.Option(min=0, help="Instead: so many honest requests through the detectors.")
    ] = 0,
    rewrite: Annotated[
        int | None,
        typer.Option(
            help="Instead: the cases rewritten with this seed, a hold-out in other words."
        ),
    ] = None,
    copies: Annotated[int, typer.Option(min=1, help="How often each case is rewritten.")] = 4,
    runs: Annotated[
        list[Path] | None, typer.Option(help="With --benign: further recorded runs or dialogues.")
    ] = None,
) -> None:
    """Attacks stopped and benign traffic stopped, each case on the enforcement path that it names.

    Exit code 0: measured, whatever the figures; 1: something could not run.
    """
    console = Console(stderr=True, highlight=False)
    if benign:
        honest = honest_requests(benign, 1, (cases, *(runs or ())))
        with bar(console, "requests", sum(map(len, honest.values()))) as advance:
            report = eval_honest(honest, advance)
        show(report, command="guard lab eval", as_json=json)
        return
    read = read_cases(cases)
    if rewrite is not None:
        read = rewritten(read, rewrite, copies)
    judged = policy or policies_directory() / "examples" / "strict.yaml"
    target = TARGET if rewrite is None else REWRITTEN
    with bar(console, "cases", len(read)) as advance:
        report = eval_egress(read, judged, progress=advance, target=target)
    show(report, command="guard lab eval", as_json=json)
    if not json:
        table = Table("category", "attacks", "blocked", "benign", "blocked", "errors")
        for name, row in report.details["categories"].items():
            table.add_row(name, *(str(count) for count in row.values()))
        Console().print(table)
