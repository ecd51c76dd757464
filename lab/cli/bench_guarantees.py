"""Benches of guarantees under attack, faults and real clients: ``guard lab bench NAME``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from guard.cli.outcome import Code
from guard.cli.terminal import show, stages
from guard.core.errors import InputError
from guard.processes.loopback import Rig
from guard.settings import Durability, policies_directory
from lab.bench_transparency import bench_transparency
from lab.envoy_rig import FrontedRig
from lab.propagation.bench import Size as PropagationSize
from lab.propagation.bench import bench_propagation
from lab.refusal_matrix import bench_refusals
from lab.write_path.bench import DATA, bench_write_path

SHARED = Path("../shared/data")
PEERS = Path("tests/peers/.environments")


def write_path(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    runs: Annotated[int, typer.Option(min=1, help="Of each attack on each system.")] = 30,
    crash_runs: Annotated[int, typer.Option(min=1, help="Of each crash point.")] = 1,
    seconds: Annotated[float, typer.Option(min=0.5, help="Of the throughput part.")] = 5.0,
    data: Annotated[Path, typer.Option(help="Folder with traces/ and locomo/.")] = DATA,
) -> None:
    """Memory writes: five attacks, crashes, races, drift, cost."""
    with Console(stderr=True).status("starting") as status:
        report = bench_write_path(
            runs=runs,
            crash_runs=crash_runs,
            seconds=seconds,
            data=data,
            progress=status.update,
        )
    show(report, command="guard lab bench", as_json=json)


def propagation(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    data: Annotated[Path, typer.Option(help="Folder with traces/ and locomo/.")] = DATA,
    incidents: Annotated[int, typer.Option(min=1, help="Of the scripted agents.")] = 100,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 7,
    part: Annotated[
        list[str] | None, typer.Option("--part", help="Only this part; may be repeated.")
    ] = None,
) -> None:
    """Measure how items spread: recorded runs, three agents, committed writes, cost."""
    size = PropagationSize(incidents=incidents, seed=seed)
    if part:
        if unknown := set(part) - size.parts:
            raise InputError(f"no part `{min(unknown)}`; there are {', '.join(sorted(size.parts))}")
        size = replace(size, parts=frozenset(part))
    with stages(Console(stderr=True)) as progress:
        report = bench_propagation(data, size, progress)
    show(report, command="guard lab bench", as_json=json)


def chaos(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    faults: Annotated[int, typer.Option(min=1, help="How many parts are broken at most.")] = 100,
    minutes: Annotated[float, typer.Option(min=0.1, help="No more faults after so long.")] = 18.0,
    seed: Annotated[int, typer.Option(help="Of the order of faults.")] = 7,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only this kind of fault; may be repeated.")
    ] = None,
    durability: Annotated[
        Durability, typer.Option(help="Of the guard's writes; `relaxed` may lose some.")
    ] = Durability.REPLICATED,
    full: Annotated[
        bool, typer.Option("--full", help="40 faults of each kind, however long it takes.")
    ] = False,
    kept: Annotated[
        Path | None,
        typer.Option(help="File that parts of the run are kept in; a later run goes on."),
    ] = None,
) -> None:
    """Kill, stop, cut off, slow down and fill up parts while agents work; check what was seen.

    Partitions, slow links and full disks need root on Linux, Envoy's faults `make envoy`, jumps of
    the clock a C compiler.
    """
    from lab.chaos.bench import EVERY_KIND, Plan, bench_chaos

    if unknown := set(kind or ()) - set(EVERY_KIND):
        raise InputError(f"no kind `{min(unknown)}`; there are {', '.join(EVERY_KIND)}")
    with stages(Console(stderr=True)) as progress:
        report = bench_chaos(
            Plan(None if full else faults, seed, tuple(kind or ()), durability),
            minutes=None if full else minutes,
            kept=kept,
            progress=progress,
        )
    show(report, command="guard lab bench", as_json=json)


def transparency(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    policy: Annotated[
        Path | None, typer.Option(help="Policy (default: examples/observe.yaml).")
    ] = None,
    suite: Annotated[
        Path | None, typer.Option(help="Folder of the conformance suite (`make conformance`).")
    ] = None,
    envoy: Annotated[bool, typer.Option("--envoy", help="With an Envoy in front.")] = False,
) -> None:
    """The same MCP scenarios directly and through the guard: how many the client sees alike."""
    with Console(stderr=True).status("starting") as status:
        report = bench_transparency(
            policy or policies_directory() / "examples" / "observe.yaml",
            progress=status.update,
            suite=suite,
            made=FrontedRig if envoy else Rig,
        )
    show(report, command="guard lab bench", as_json=json)


def refusals(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    suite: Annotated[Path, typer.Option(help="Folder of the clients (`make conformance`).")] = Path(
        "tests/conformance"
    ),
    only: Annotated[str, typer.Option(help="Words in the names of the clients to run.")] = "",
    envoy: Annotated[bool, typer.Option("--envoy", help="With an Envoy in front.")] = False,
) -> None:
    """Count the real clients that hand their models the reason for a refusal, and the remedy.

    Exit code 2 where one does not, or none is installed.
    """
    with stages(Console(stderr=True)) as progress:
        report = bench_refusals(
            suite, progress=progress, only=only, made=FrontedRig if envoy else Rig
        )
    show(report, command="guard lab bench", as_json=json)
    if report.checks[0].value != 1.0:
        raise typer.Exit(Code.REFUSED)


def selection(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    locomo: Annotated[
        Path | None, typer.Option(help="Conversations in LoCoMo's form (.json or .json.gz).")
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder with locomo/ and 2wiki/.")] = SHARED,
    edges: Annotated[
        int, typer.Option(min=1000, help="Edges of the largest ledger that is loaded.")
    ] = 1_000_000,
) -> None:
    """Attacks on a graph memory's selection, the defences, and what a replay costs."""
    from lab.selection.bench import bench_selection

    with stages(Console(stderr=True)) as progress:
        report = bench_selection(locomo, data, progress, edges=edges)
    show(report, command="guard lab bench", as_json=json)


def adopt(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    flows: Annotated[int, typer.Option(min=1, help="Honest flows, drawn evenly.")] = 120,
    full: Annotated[bool, typer.Option("--full", help="All of them.")] = False,
) -> None:
    """The first hour: what `guard init` makes of real servers, commands to a guard that blocks."""
    # Here: the others need no composition root, whose import takes longer than their start.
    from guard.runtime.wiring import assemble
    from guard.store.embedded import EmbeddedRedis
    from lab.adopt.bench import bench_adopt

    with stages(Console(stderr=True)) as progress, EmbeddedRedis() as redis:
        found = bench_adopt(
            assemble,
            redis.url,
            flows=None if full else flows,
            progress=progress,
        )
    show(found, command="guard lab bench", as_json=json)
