"""``guard lab eval NAME``: how well the guard decides, on recorded and on generated runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from guard.cli.outcome import given_input
from guard.cli.terminal import bar
from guard.core.errors import InputError
from guard.inference.onnx import load_models
from guard.replay.reports import Check, Report, machine
from guard.settings import models_directory, policies_directory
from guard.store.embedded import EmbeddedRedis
from lab.cli.labelled_runs import (
    SessionOption,
    ToolsOption,
    Traces,
)
from lab.cli.terminal import counters, show
from lab.dataset import Labelling, Reading, load_dataset, roles_of
from lab.eval_egress import eval_egress, read_cases
from lab.eval_provenance import Options as ProvenanceOptions
from lab.eval_provenance import eval_provenance
from lab.eval_trust import eval_trust
from lab.paper import TRIGGER_SESSION

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
) -> None:
    """Stopped attacks and honest sends flagged, on recorded and on generated runs.

    Exit code 0: measured, whatever the figures; 1: something could not run.
    """
    with counters(Console(stderr=True, highlight=False)) as begin:
        options = ProvenanceOptions(
            data or recorded_beside(), seed=seed, scale=scale, progress=begin
        )
        report = eval_provenance(options)
    show(report, as_json=json)


@app.command()
def intent(
    json: AsJson = False,
    data: Recorded = None,
    seed: Seed = "0",
    scale: Scale = 1.0,
) -> None:
    """Attacks stopped and questions asked about actions and sends, on recorded runs.

    Exit code 0: measured, whatever the figures; 1: something could not run.
    """
    # Here: the prompts that it generates import the whole guard.
    from lab.intent.evaluation import eval_intent

    with counters(Console(stderr=True, highlight=False)) as begin:
        options = ProvenanceOptions(
            data or recorded_beside(), seed=seed, scale=scale, progress=begin
        )
        report = eval_intent(options)
    show(report, as_json=json)


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
    from guard.runtime.wiring import assemble

    with counters(Console(stderr=True, highlight=False)) as begin, EmbeddedRedis() as redis:
        report = eval_trust(
            assemble,
            redis.url,
            seed=seed,
            limit=None if full else limit,
            only=attack or (),
            flows=flows,
            progress=begin,
        )
    show(report, as_json=json)


def recorded_beside() -> Path | None:
    """Return where a source checkout has the recorded runs beside it, if it has."""
    data = policies_directory().parent.parent / "shared" / "data" / "traces"
    return data if data.is_dir() else None


@app.command()
def classifier(
    traces: Traces,
    json: AsJson = False,
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
) -> None:
    """Test the recall-before-send rule and forests on labelled runs.

    Forests on 19 and 13 features: random folds and unseen model x defence cells, with BCa
    intervals; the ONNX export of the monotone model against the fitted one on every row.

    Exit code 0: measured, whatever the figures; 1: failed; 3: a trace or policy is
    invalid, or the runs hold one class only.
    """
    from lab.eval_classifier import eval_classifier

    with given_input():
        data = load_dataset(traces, Reading(label, session, roles=roles_of(tools)))
        report = eval_classifier(data, label)
    show(report, as_json=json)
    for note in report.details["traps"]:
        Console(stderr=True).print(f"note: {note}", soft_wrap=True)


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
    from guard.inference.text_classifier import load_classifiers
    from lab.instructions import evaluated, has_pattern, read_texts

    with given_input():
        texts = read_texts(data)
    found = {one.name: one for one in load_classifiers()}
    if detector is not None and detector not in found:
        raise InputError(f"unknown detector `{detector}`; add it with `guard detectors add`")
    finds = has_pattern
    if detector is not None:
        # A text that is too long counts as withheld.
        finds = lambda text: found[detector].inspect_result(text) is not None  # noqa: E731
    with bar(Console(stderr=True), "texts", len(texts.texts)) as advance:
        report = evaluated(texts, finds, advance)
    show(report, as_json=json)


@app.command()
def forensics(
    json: AsJson = False,
    data: Annotated[Path, typer.Option(help="Folder with the recorded runs.")] = Path(
        "../shared/data/traces"
    ),
    out: Annotated[
        Path | None, typer.Option(help="Models directory to write the fitted model to.")
    ] = None,
) -> None:
    """Kinds of incident by the order of calls, on grouped splits; and the shipped signature.

    Exit code 0: measured, whatever the figures; 1: failed; 3: a trace or model is invalid.
    """
    from lab.forensics import ACCURACY, FILES, train_forensics
    from lab.signature import respected
    from lab.training import write_artefact

    with given_input():
        shipped = load_models(models_directory())["prefix-13"]
    kept, pairs = respected(shipped.score)
    details: dict[str, Any] = {}
    found = Check(
        id="forensic_accuracy",
        value=None,
        unit="fraction",
        reason="the recorded runs are not here; name their folder with --data",
    )
    if all((data / name).is_file() for name in FILES):
        onnx, card = train_forensics(data)
        details = card["evaluation"]
        grouped = details["grouped_folds"]
        found = Check(
            id="forensic_accuracy",
            value=grouped["accuracy"],
            unit="fraction",
            n=grouped["sessions"],
            interval=tuple(grouped["accuracy_interval_over_groups"]),
            target=ACCURACY,
        )
        if out is not None:
            write_artefact(out, onnx, card)
    respects = Check(
        id="signature_respected", value=kept / pairs, unit="fraction", n=pairs, target="1.0"
    )
    report = Report(name="forensics", machine=machine(), checks=[respects, found], details=details)
    show(report, as_json=json)


@app.command("egress-bench")
def egress_bench(
    cases: Annotated[
        Path,
        typer.Argument(help="Cases of agent-egress-bench, one per line."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    policy: Annotated[
        Path, typer.Option(help="Policy.", show_default="examples/strict.yaml")
    ] = policies_directory() / "examples" / "strict.yaml",
) -> None:
    """Attacks stopped and benign traffic stopped, each case on the enforcement path that it names.

    Exit code 0: measured, whatever the figures; 1: something could not run.
    """
    read = read_cases(cases)
    from guard.runtime.wiring import assemble

    with bar(Console(stderr=True), "cases", len(read)) as advance, EmbeddedRedis() as redis:
        report = eval_egress(assemble, redis.url, read, policy, progress=advance)
    show(report, as_json=json)
