"""Benches of speed, load, growth and guarantees: ``guard lab bench NAME``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from guard.cli.outcome import Code
from guard.core.errors import InputError
from guard.processes.loopback import Rig
from guard.replay.reports import Report
from guard.settings import Durability, policies_directory
from lab.bench_proxy import bench_provenance, bench_proxy
from lab.bench_transparency import bench_transparency
from lab.cli.terminal import show, stages
from lab.envoy_rig import FrontedRig
from lab.load import Progress
from lab.propagation.bench import PARTS, bench_propagation
from lab.refusal_matrix import bench_refusals
from lab.write_path.bench import DATA, bench_write_path

SHARED = Path("../shared/data")
PEERS = Path("tests/peers/.environments")
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
PolicyFile = Annotated[Path, typer.Option(help="Policy.", show_default="the shipped one")]
DEFAULT = policies_directory() / "default.yaml"
Rounds = Annotated[int, typer.Option(min=1, help="Alternating rounds.")]
Seconds = Annotated[float, typer.Option(min=0.5, help="Length of one load.")]


def _reported(measure: Callable[[Progress], Report], as_json: bool) -> Report:
    """Measure, show the report, and return it."""
    with stages(Console(stderr=True)) as progress:
        report = measure(progress)
    show(report, as_json=as_json)
    return report


def proxy(
    json: AsJson = False,
    policy: PolicyFile = DEFAULT,
    rounds: Rounds = 5,
    seconds: Seconds = 4.0,
) -> None:
    """Requests per second against stock mitmdump, decision times, growth, memory, round trips."""
    _reported(lambda told: bench_proxy(policy, rounds=rounds, seconds=seconds, progress=told), json)


def soak(
    json: AsJson = False,
    calls: Annotated[int, typer.Option(min=5000, help="How many.")] = 100_000,
    full: Annotated[bool, typer.Option("--full", help="2,000,000 calls.")] = False,
) -> None:
    """Measure growth of memory, descriptors and times while sessions and policies change."""
    from lab.soak import bench_soak

    _reported(lambda told: bench_soak(calls=2_000_000 if full else calls, progress=told), json)


def peers(
    json: AsJson = False,
    policy: PolicyFile = DEFAULT,
    rounds: Rounds = 5,
    seconds: Seconds = 4.0,
    installed: Annotated[Path, typer.Option(help="Where `make bench-peers` installs.")] = PEERS,
) -> None:
    """Other gateways of MCP beside the guard: requests per second, latency, what each inspects."""
    from lab.peers.bench import bench_peers

    _reported(
        lambda told: bench_peers(policy, installed, rounds=rounds, seconds=seconds, progress=told),
        json,
    )


def overload(
    json: AsJson = False,
    policy: PolicyFile = DEFAULT,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of each load.")] = 10.0,
) -> None:
    """Three times as many calls as the guard can judge; large messages beside small ones."""
    from lab.overload import bench_overload

    _reported(lambda told: bench_overload(policy, seconds=seconds, progress=told), json)


def provenance(
    json: AsJson = False,
    policy: PolicyFile = DEFAULT,
    rounds: Rounds = 5,
    seconds: Seconds = 4.0,
) -> None:
    """Decision times with many labelled values, growth, bytes per value, the ratio."""
    _reported(
        lambda told: bench_provenance(policy, rounds=rounds, seconds=seconds, progress=told), json
    )


def write_path(
    json: AsJson = False,
    runs: Annotated[int, typer.Option(min=1, help="Of each attack on each system.")] = 30,
    crash_runs: Annotated[int, typer.Option(min=1, help="Of each crash point.")] = 1,
    seconds: Annotated[float, typer.Option(min=0.5, help="Of the throughput part.")] = 5.0,
    data: Annotated[Path, typer.Option(help="Folder with traces/ and locomo/.")] = DATA,
) -> None:
    """Memory writes: five attacks, crashes, races, drift, cost."""
    _reported(
        lambda told: bench_write_path(
            runs=runs,
            crash_runs=crash_runs,
            seconds=seconds,
            data=data,
            progress=lambda stage: told(stage, 0.5),
        ),
        json,
    )


def propagation(
    json: AsJson = False,
    data: Annotated[Path, typer.Option(help="Folder with traces/ and locomo/.")] = DATA,
    incidents: Annotated[int, typer.Option(min=1, help="Of the scripted agents.")] = 100,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 7,
    part: Annotated[
        list[str] | None, typer.Option("--part", help="Only this part; may be repeated.")
    ] = None,
) -> None:
    """Measure how items spread: recorded runs, three agents, committed writes, cost."""
    if unknown := set(part or ()) - set(PARTS):
        raise InputError(f"no part `{min(unknown)}`; there are {', '.join(PARTS)}")
    only = [name for name in PARTS if name in (part or PARTS)]
    _reported(
        lambda told: bench_propagation(
            data, incidents=incidents, seed=seed, only=only, progress=told
        ),
        json,
    )


def chaos(
    json: AsJson = False,
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

    Partitions and full disks need root on Linux, Envoy's faults `make envoy`, jumps of the clock a
    C compiler.
    """
    from lab.chaos.bench import EVERY_KIND, Plan, bench_chaos

    if unknown := set(kind or ()) - set(EVERY_KIND):
        raise InputError(f"no kind `{min(unknown)}`; there are {', '.join(EVERY_KIND)}")
    plan = Plan(None if full else faults, seed, tuple(kind or ()), durability)
    longest = None if full else minutes
    _reported(lambda told: bench_chaos(plan, minutes=longest, kept=kept, progress=told), json)


def transparency(
    json: AsJson = False,
    policy: Annotated[
        Path, typer.Option(help="Policy.", show_default="examples/observe.yaml")
    ] = policies_directory() / "examples" / "observe.yaml",
    suite: Annotated[
        Path | None, typer.Option(help="Folder of the conformance suite (`make conformance`).")
    ] = None,
    envoy: Annotated[bool, typer.Option("--envoy", help="With an Envoy in front.")] = False,
) -> None:
    """The same MCP scenarios directly and through the guard: how many the client sees alike."""
    made = FrontedRig if envoy else Rig
    _reported(lambda told: bench_transparency(policy, progress=told, suite=suite, made=made), json)


def refusals(
    json: AsJson = False,
    suite: Annotated[Path, typer.Option(help="Folder of the clients (`make conformance`).")] = Path(
        "tests/conformance"
    ),
    only: Annotated[str, typer.Option(help="Words in the names of the clients to run.")] = "",
    envoy: Annotated[bool, typer.Option("--envoy", help="With an Envoy in front.")] = False,
) -> None:
    """Count the real clients that hand their models the reason for a refusal, and the remedy.

    Exit code 2 where one does not, or none is installed.
    """
    made = FrontedRig if envoy else Rig
    report = _reported(
        lambda told: bench_refusals(suite, progress=told, only=only, made=made), json
    )
    if report.checks[0].value != 1.0:
        raise typer.Exit(Code.REFUSED)


def selection(
    json: AsJson = False,
    locomo: Annotated[
        Path | None, typer.Option(help="Conversations in LoCoMo's form (.json or .json.gz).")
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder with locomo/ and 2wiki/.")] = SHARED,
) -> None:
    """Attacks on a graph memory's selection, the defences, and what a replay costs."""
    from lab.selection.bench import bench_selection

    _reported(lambda told: bench_selection(locomo, data, told), json)


def adopt(
    json: AsJson = False,
    flows: Annotated[int, typer.Option(min=1, help="Honest flows, drawn evenly.")] = 120,
    full: Annotated[bool, typer.Option("--full", help="All of them.")] = False,
) -> None:
    """The first hour: what `guard init` makes of real servers, commands to a guard that blocks."""
    # Here: the others need no composition root, whose import takes longer than their start.
    from guard.runtime.wiring import assemble
    from guard.store.embedded import EmbeddedRedis
    from lab.adopt.bench import bench_adopt

    with EmbeddedRedis() as redis:
        _reported(
            lambda told: bench_adopt(
                assemble, redis.url, flows=None if full else flows, progress=told
            ),
            json,
        )
