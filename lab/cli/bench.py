"""Benches of speed, load and growth: ``guard lab bench NAME``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from guard.cli.terminal import show, stages
from guard.settings import policies_directory
from lab.bench_provenance import Size, bench_provenance
from lab.bench_proxy import bench_proxy
from lab.bench_stream import bench_stream

SHARED = Path("../shared/data")
PEERS = Path("tests/peers/.environments")


def proxy(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    policy: Annotated[Path | None, typer.Option(help="Policy (default: the shipped one).")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of a round.")] = 4.0,
) -> None:
    """Requests per second against stock mitmdump, decision times, growth, memory, round trips."""
    with stages(Console(stderr=True)) as progress:
        report = bench_proxy(
            policy or policies_directory() / "default.yaml",
            rounds=rounds,
            seconds=seconds,
            progress=progress,
        )
    show(report, command="guard lab bench", as_json=json)


def scale(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    policy: Annotated[Path | None, typer.Option(help="Policy (default: the shipped one).")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of one load.")] = 4.0,
) -> None:
    """Both enforcement points against stock mitmdump, start, memory."""
    from lab.bench_scale import bench_scale

    with stages(Console(stderr=True)) as progress:
        report = bench_scale(
            policy or policies_directory() / "default.yaml",
            rounds=rounds,
            seconds=seconds,
            progress=progress,
        )
    show(report, command="guard lab bench", as_json=json)


def soak(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    calls: Annotated[int, typer.Option(min=5000, help="How many.")] = 100_000,
    full: Annotated[bool, typer.Option("--full", help="2,000,000 calls.")] = False,
) -> None:
    """Measure growth of memory, descriptors and times while sessions and policies change."""
    from lab.soak import bench_soak

    with stages(Console(stderr=True)) as progress:
        report = bench_soak(calls=2_000_000 if full else calls, progress=progress)
    show(report, command="guard lab bench", as_json=json)


def peers(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    policy: Annotated[Path | None, typer.Option(help="Policy (default: the shipped one).")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Alternating rounds.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of one load.")] = 4.0,
    installed: Annotated[Path, typer.Option(help="Where `make bench-peers` installs.")] = PEERS,
) -> None:
    """Other gateways of MCP beside the guard: requests per second, latency, what each inspects."""
    from lab.peers.bench import bench_peers, table

    console = Console(stderr=True)
    with stages(console) as progress:
        report = bench_peers(
            policy or policies_directory() / "default.yaml",
            installed,
            rounds=rounds,
            seconds=seconds,
            progress=progress,
        )
    console.print(table(report.details["table"]))
    show(report, command="guard lab bench", as_json=json)


def overload(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    policy: Annotated[Path | None, typer.Option(help="Policy (default: the shipped one).")] = None,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of each load.")] = 10.0,
) -> None:
    """Three times as many calls as the guard can judge; large messages beside small ones."""
    from lab.overload import bench_overload
    from lab.overload_large import with_large_messages

    path = policy or policies_directory() / "default.yaml"
    with stages(Console(stderr=True)) as progress:
        report = bench_overload(path, seconds=seconds, progress=progress)
        report = with_large_messages(report, path, seconds=seconds, progress=progress)
    show(report, command="guard lab bench", as_json=json)


def stream(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    policy: Annotated[Path | None, typer.Option(help="Policy (default: the shipped one).")] = None,
    rounds: Annotated[int, typer.Option(min=3, help="Streams of each kind.")] = 40,
) -> None:
    """Measure what the guard adds to a stream's first event, gaps and first token."""
    with Console(stderr=True).status("starting") as status:
        report = bench_stream(
            policy or policies_directory() / "default.yaml",
            rounds=rounds,
            progress=status.update,
        )
    show(report, command="guard lab bench", as_json=json)


def provenance(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    policy: Annotated[Path | None, typer.Option(help="Policy (default: the shipped one).")] = None,
    values: Annotated[int, typer.Option(min=100, help="Labelled values.")] = Size().values,
    calls: Annotated[int, typer.Option(min=100, help="Calls of the long session.")] = Size().calls,
    rounds: Annotated[int, typer.Option(min=0, help="Rounds of the ratio; 0: none.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of a round.")] = 4.0,
) -> None:
    """Decision times with many labelled values, growth, bytes per value, the ratio."""
    size = Size(values=values, calls=calls, rounds=rounds, seconds=seconds)
    with stages(Console(stderr=True)) as progress:
        report = bench_provenance(policy or policies_directory() / "default.yaml", size, progress)
    show(report, command="guard lab bench", as_json=json)
