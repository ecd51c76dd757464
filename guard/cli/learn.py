"""``guard learn``: recorded runs become a proposal, tested before it is written."""

from __future__ import annotations

import asyncio
import difflib
import json
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from guard.cli.outcome import Code, given_input, plain
from guard.core.errors import InputError
from guard.policy import load_policies
from guard.settings import EMBEDDED

if TYPE_CHECKING:
    from guard.core.policy import Policy

EVENT: Final = "guard.decision"
ANSWERED: Final = "guard.approval"
LOOSER: Final = {("ask", "allow"), ("ask", "ask")}
"""What a proposal may change in the verdict on a recorded call."""


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
    from guard.cli.policy import shipped_detectors
    from guard.replay.learning import learn as learned
    from guard.replay.learning import overlay_text
    from guard.replay.traces import read_traces
    from guard.store.embedded import EmbeddedRedis

    with given_input():
        before = load_policies(policy)
        runs = list(read_traces(traces))
        counts, denied = _audited(audit)
    until = (datetime.now(UTC) + timedelta(days=days)).date().isoformat()  # noqa: TID251  (an end is a day of the calendar)
    with ExitStack() as stack:
        url = stack.enter_context(EmbeddedRedis()).url if redis == EMBEDDED else redis
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
    import tempfile

    from guard.cli.policy import shipped_detectors
    from guard.replay.diff import find_flips
    from guard.replay.traces import read_traces

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / output.name
        path.write_text(text, encoding="utf-8")
        after = load_policies([*(p for p in policy if p != output), path])
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
                msg = f"`{audit}` is no audit log: {error}"
                raise InputError(msg) from error
            if not isinstance(entry, dict):
                continue
            if entry.get("event") == EVENT:
                counts[str(entry.get("tool", ""))] += 1
            elif entry.get("event") == ANSWERED and entry.get("answer") == "denied":
                denied.add(str(entry.get("decision_id", "")))
    return counts, denied
