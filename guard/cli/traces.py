"""``guard traces`` and ``guard learn``: recorded runs through a policy, and what they teach."""

from __future__ import annotations

import asyncio
import difflib
import gzip
import json
import os
import sys
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from guard.cli.outcome import Code, given_input, plain
from guard.cli.policy import Models
from guard.cli.running import redis_url, shipped_detectors
from guard.cli.terminal import bar
from guard.core.errors import InputError
from guard.core.policy import Action, Mode, Policy
from guard.credentials.key_ring import load_ring
from guard.credentials.label_key import recording_key_path
from guard.policy import load_policies
from guard.provenance.imports import read_items
from guard.replay.run import Replay, Summary, fresh_store
from guard.replay.traces import Selection, as_runs, read_traces, without_secrets
from guard.settings import EMBEDDED
from guard.telemetry.recordings import RecordingReader


def replay(
    traces: Annotated[
        list[Path], typer.Argument(help="Trace files, format v1: .jsonl or .jsonl.gz.")
    ],
    policy: Annotated[
        list[Path], typer.Option("--policy", "-p", help="Policy files; several make one policy.")
    ],
    redis: Annotated[
        str, typer.Option("--redis", help="`embedded`, or the URL of your own Redis.")
    ] = EMBEDDED,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the verdicts here, not to stdout.")
    ] = None,
    memory: Annotated[
        Path | None,
        typer.Option(
            "--memory", help="JSON list of what every run's memory held: store, value, label."
        ),
    ] = None,
    models: Models = None,
) -> None:
    """Judge every call of recorded runs and write one JSON line per call.

    Open-loop: a call that would have been refused still counts as executed, as it was in the
    recording.  Exit code 0: replayed; 1: failed; 3: the policy or a trace is invalid.
    """
    console = Console(stderr=True, highlight=False, markup=False)
    if out is not None and out.resolve() in {path.resolve() for path in traces}:
        raise InputError(f"`{out}` is one of the traces, write the verdicts to another file")
    with given_input():
        loaded = load_policies(policy)
        # Read once ahead: a bad line is refused before anything is judged, and the bar has an end.
        total = sum(1 for _ in read_traces(traces))
        held = read_items(memory.read_text(encoding="utf-8")) if memory is not None else []
    started = time.perf_counter()
    with ExitStack() as stack:
        sink = stack.enter_context(out.open("w", encoding="utf-8")) if out else sys.stdout
        url = stack.enter_context(redis_url(redis))
        advance = stack.enter_context(bar(console, "replaying", total))
        detectors = shipped_detectors(models)

        async def judged() -> Summary:
            async with fresh_store(url, loaded.limits) as store:
                engine = Replay(loaded, store, detectors, held)
                return await engine.run(read_traces(traces), sink.write, advance)

        summary = asyncio.run(judged())
    console.print(_table(summary, loaded, time.perf_counter() - started))


def from_recording(
    recordings: Annotated[Path, typer.Argument(help="Directory of `guard run --record`.")],
    out: Annotated[Path, typer.Option("--out", help="Trace file to write: .jsonl or .jsonl.gz.")],
    key: Annotated[
        Path | None, typer.Option(help="Key file of the recordings (default: the guard's own).")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Take what was recorded from then on (UTC).")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="Take what was recorded before (UTC).")
    ] = None,
    tenant: Annotated[str, typer.Option(help="Take this tenant's only.")] = "",
    principal: Annotated[str, typer.Option(help="Take this principal's only.")] = "",
    session: Annotated[str, typer.Option(help="Take this session's only.")] = "",
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace secrets in arguments, results and prompts.")
    ] = False,
) -> None:
    """Decipher recordings and write them as recorded runs, one for each tenant.

    Exit code 0: written; 1: written, and a segment was cut off or altered, or exchanges were lost
    (each is named on stderr); 3: no recordings, or another key.
    """
    console = Console(stderr=True, highlight=False, markup=False)
    ring = load_ring(key or recording_key_path(), "recording key", make=False)
    reader = RecordingReader(recordings, *ring.readers())
    chosen = Selection(
        since.replace(tzinfo=UTC).timestamp() if since else 0.0,
        until.replace(tzinfo=UTC).timestamp() if until else float("inf"),
        tenant,
        principal,
        session,
    )
    with bar(console, "reading", len(reader.segments())) as advance:
        masked = without_secrets if redact else lambda value: value
        found = as_runs(reader.records(advance), chosen, masked)
    lines = "".join(json.dumps(run) + "\n" for run in found.runs).encode()
    handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(gzip.compress(lines) if out.suffix == ".gz" else lines)
    console.print(
        f"{found.calls} calls of {len(found.runs)} tenants, "
        f"{found.unanswered} forwarded without a recorded result"
    )
    damaged = [report for report in reader.reports if report.problem]
    for report in damaged:
        console.print(f"{report.path}: {report.problem} ({report.records} records were read)")
    if found.lost:
        console.print(f"{found.lost} exchanges were not recorded: nothing could be written then")
    if damaged or found.lost:
        raise typer.Exit(1)


def _table(summary: Summary, policy: Policy, seconds: float) -> Table:
    """Return the counts by role and action; in monitor mode of what enforce mode would do."""
    would = "would " if policy.mode is Mode.MONITOR else ""
    table = Table(
        title=f"{policy.name} ({policy.mode.value})",
        caption=(
            f"{summary.runs} runs, {summary.calls} calls in {seconds:.1f} s: "
            f"{summary.runs / seconds if seconds else 0:.0f} runs/s"
        ),
    )
    table.add_column("role")
    for action in Action:
        table.add_column(f"{would}{action.label}", justify="right")
    for role, counts in summary.rows():
        table.add_row(role, *(str(count) for count in counts))
    return table


EVENT: Final = "guard.decision"
ANSWERED: Final = "guard.approval"
LOOSER: Final = {("ask", "allow"), ("ask", "ask")}
"""Changes that a proposal may make to the verdict on a recorded call."""


def learn(
    traces: Annotated[list[Path], typer.Argument(help="Trace files: .jsonl or .jsonl.gz.")],
    policy: Annotated[list[Path], typer.Option("--policy", "-p", help="Policy files in force.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to load beside the policy.")
    ] = Path("learned.yaml"),
    days: Annotated[int, typer.Option(min=1, max=366, help="Days until an entry ends.")] = 30,
    at_least: Annotated[int, typer.Option(min=1, help="Sessions that must support an entry.")] = 3,
    audit: Annotated[
        Path | None, typer.Option(help="Audit log: a person's no, and how often tools were called.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the file, and not just show it.")
    ] = False,
    redis: Annotated[
        str, typer.Option(help="`embedded`, or the URL of your own Redis.")
    ] = EMBEDDED,
) -> None:
    """Show what recorded runs would change in a policy, as a diff with counts behind every line.

    Nothing is learned of a session in which a call was blocked or a receiver tainted.  A receiver
    is proposed for sends that a person approved, and never after a person's no.  The proposal
    is replayed on the same runs before it is shown; one that does more than answer what was asked
    is refused with exit code 2.

    Example: guard learn week.jsonl --policy policy.yaml --write
    """
    from guard.replay.learning import learn as learned
    from guard.replay.learning import overlay_text

    with given_input():
        before = load_policies(policy)
        runs = list(read_traces(traces))
        counts, denied = _audited(audit)
    until = (datetime.now(UTC) + timedelta(days=days)).date().isoformat()  # noqa: TID251  (an end is a day of the calendar)
    with redis_url(redis) as url:
        detectors = shipped_detectors(None)
        found = asyncio.run(learned(before, runs, url, detectors, denied))
        text = overlay_text(before, output.stem, found, until=until, at_least=at_least)
        flips = asyncio.run(_tested(before, policy, text, output, traces, url))
    old = output.read_text("utf-8").splitlines() if output.exists() else []
    for line in difflib.unified_diff(old, text.splitlines(), str(output), "proposed", lineterm=""):
        typer.echo(plain(line))
    changes = ", ".join(f"{n} {kind}" for kind, n in sorted(flips.items())) or "no verdict changes"
    typer.echo(
        f"{found.sessions} sessions, {found.skipped} teach nothing; on them: {changes}", err=True
    )
    for tool, calls in counts.most_common():
        typer.echo(plain(f"audit: {tool}: {calls} calls"), err=True)
    if any(tuple(kind.split(" -> ")) not in LOOSER for kind in flips):
        typer.echo("refused: it would do more than answer what was asked", err=True)
        raise typer.Exit(Code.REFUSED)
    if write:
        output.write_text(text, encoding="utf-8")
        typer.echo(f"wrote {output}; load it with --policy {output} beside the others", err=True)


async def _tested(
    before: Policy, policy: list[Path], text: str, output: Path, traces: list[Path], url: str
) -> Counter[str]:
    """Return the flips of the proposal on the runs, by kind."""
    from guard.replay.run import find_flips

    after = load_policies([*(p for p in policy if p != output), output], {str(output): text})
    detectors = shipped_detectors(None)
    flips, _ = await find_flips((before, after), lambda: read_traces(traces), url, detectors)
    return Counter(f"{flip['before']} -> {flip['after']}" for flip in flips)


def _audited(audit: Path | None) -> tuple[Counter[str], set[str]]:
    """Return how often each tool was decided on, and the decisions that a person denied."""
    counts: Counter[str] = Counter()
    denied: set[str] = set()
    if audit is None:
        return counts, denied
    with audit.open(encoding="utf-8") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise InputError(f"`{audit}` is no audit log: {error}") from error
            if not isinstance(entry, dict):
                continue
            if entry.get("event") == EVENT:
                counts[str(entry.get("tool", ""))] += 1
            elif entry.get("event") == ANSWERED and entry.get("answer") == "denied":
                denied.add(str(entry.get("decision_id", "")))
    return counts, denied
