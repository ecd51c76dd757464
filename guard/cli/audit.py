"""``guard audit``: what can be done with the audit log of a guard."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from guard.cli.outcome import given_input
from guard.cli.running import act_on
from guard.cli.terminal import show_table
from guard.core.errors import InputError
from guard.credentials.key_ring import audit_signer, audit_verifiers
from guard.settings import models_directory
from guard.telemetry.audit_export import COLUMNS as CSV_COLUMNS
from guard.telemetry.audit_export import as_csv_row, as_ocsf, as_otlp
from guard.telemetry.audit_log import EVENT_DECISION
from guard.telemetry.audit_tree import AuditReport, Verifier, verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


app = typer.Typer(help="The audit log: verify, follow, summarise, export it.", no_args_is_help=True)
Files = Annotated[
    list[Path], typer.Argument(help="The log's files, rotated ones first.", exists=True)
]
AuditKey = Annotated[
    Path | None, typer.Option(envvar="GUARD_AUDIT_KEY", help="The key file that signs the log.")
]
POLL_SECONDS = 0.2


class Format(StrEnum):
    """Format of an exported log."""

    CSV = "csv"
    OCSF = "ocsf"
    OTLP = "otlp"


@app.command("verify")
def verify_log(
    files: Files,
    key: AuditKey = None,
    public_key: Annotated[
        list[str] | None,
        typer.Option(help="A verifier key (`guard audit key`), instead of the key file; repeat."),
    ] = None,
    anchor: Annotated[
        list[Path] | None, typer.Option(help="File with a checkpoint kept elsewhere; repeat.")
    ] = None,
    redis: Annotated[
        str, typer.Option(envvar="GUARD_REDIS", help="Redis URL of the guard: its anchors.")
    ] = "",
) -> None:
    """Say whether a line was changed, removed, reordered or added, or the end cut off.

    Exit code 0: sound; 1: not; 3: a file or key cannot be used.
    """
    known = [Verifier.parse(one) for one in public_key or ()]
    verifiers = known or audit_verifiers(key)
    anchors = [path.read_text(encoding="utf-8") for path in anchor or ()]
    if redis:
        anchors += act_on(redis, lambda state: state.store.anchors())
    report = verify(files, verifiers, anchors)
    for line in _findings(report):
        typer.echo(line)
    if not report.is_sound:
        raise typer.Exit(1)


@app.command("key")
def show_key(key: AuditKey = None) -> None:
    """Print the verifier key, one line for each where it was rotated: with it others can check the
    log, and sign nothing.
    """
    audit_signer(key)
    for verifier in audit_verifiers(key):
        typer.echo(verifier.text)


@app.command()
def tail(
    file: Annotated[Path, typer.Argument(help="The log.", exists=True)],
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the last.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until stopped.")] = False,
) -> None:
    """Print the last decisions in words."""
    console = Console(highlight=False, markup=False)
    for entry in [*read_entries([file])][-lines:]:
        console.print(_words(entry))
    if follow:
        with file.open(encoding="utf-8", errors="replace") as stream:
            stream.seek(0, 2)
            for entry in _followed(stream):
                console.print(_words(entry))


@app.command()
def session(
    name: Annotated[str, typer.Argument(help="The session's id.")],
    files: Files,
) -> None:
    """Print every decision of one session, oldest first."""
    console = Console(highlight=False, markup=False)
    found = [entry for entry in read_entries(files) if entry.get("session") == name]
    if not found:
        raise InputError(f"no line of session `{name}`")
    for entry in found:
        console.print(_words(entry))


@app.command()
def classify(
    name: Annotated[
        str, typer.Argument(help="The session's id; of a recorded run, RUN or RUN/SESSION.")
    ],
    files: Files,
    policy: Annotated[
        Path | None,
        typer.Option(help="Policy that says what the tools of recorded runs do."),
    ] = None,
    models: Annotated[Path | None, typer.Option(help="Models directory; the shipped one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say whether the order of a session's calls shows memory poisoning, prompt injection, neither
    or nothing (`undecided`).

    Reads the files of an audit log, or recorded runs.  Refused calls count as well.  No argument is
    looked at, and the answer is evidence, not proof: the model's card has its figures.
    """
    from guard.inference.onnx import load_models
    from guard.replay.forensics import classify_session, roles_in_log, roles_in_runs

    with given_input():
        loaded = load_models(models or models_directory())
        entries = list(read_entries(files))
        is_log = any("event" in entry for entry in entries)
        roles = roles_in_log(name, entries) if is_log else roles_in_runs(name, files, policy)
    if not roles:
        raise InputError(f"no call of session `{name}`")
    found = classify_session(loaded, roles)
    calls = [role.value for role in roles]
    if as_json:
        answer = {"verdict": found.verdict, "if_incident": found.if_incident, **found.shares}
        typer.echo(json.dumps({"session": name, **answer, "calls": calls}))
        return
    shares = ", ".join(f"{kind} {value:.2f}" for kind, value in found.shares.items())
    typer.echo(f"{found.verdict}: {shares}")
    if found.if_incident:
        typer.echo(f"if other evidence shows an incident: {found.if_incident}")
    typer.echo("calls: " + " → ".join(calls))


@app.command()
def top(
    files: Files,
    count: Annotated[int, typer.Option("--count", "-n", help="Rows of each table.")] = 10,
) -> None:
    """Count decisions by principal, tool and reason, the most refused first."""
    decisions = [entry for entry in read_entries(files) if entry.get("event") == EVENT_DECISION]
    for title, keys in (
        ("principal", lambda e: [e.get("principal", "")]),
        ("tool", lambda e: [e.get("tool", "")]),
        ("reason", lambda e: {str(r.get("code", "")) for r in e.get("reasons", ())}),
    ):
        every: Counter[str] = Counter(str(k) for e in decisions for k in keys(e))
        refused: Counter[str] = Counter(
            str(k) for e in decisions if e.get("enforced") in {"ask", "block"} for k in keys(e)
        )
        names = sorted(every, key=lambda n: (-refused[n], -every[n], n))[:count]
        rows = ((name, every[name], refused[name]) for name in names)
        show_table((title, "decisions", "asked or blocked"), rows)


@app.command()
def export(
    files: Files,
    form: Annotated[Format, typer.Option("--format", help="csv, ocsf or otlp.")],
) -> None:
    """Write the decisions to standard output: CSV, OCSF events or OTLP log records."""
    decisions = (entry for entry in read_entries(files) if entry.get("event") == EVENT_DECISION)
    if form is Format.CSV:
        writer = csv.DictWriter(sys.stdout, CSV_COLUMNS)
        writer.writeheader()
        writer.writerows(map(as_csv_row, decisions))
        return
    convert = as_ocsf if form is Format.OCSF else as_otlp
    for entry in decisions:
        sys.stdout.write(json.dumps(convert(entry)) + "\n")


def _findings(report: AuditReport) -> Iterator[str]:
    for log in report.logs.values():
        state = "NOT SOUND" if log.problems else "sound"
        begins = f" from line {log.first}" if log.first else ""
        unsigned = log.first + log.lines - log.signed
        yield f"{log.log}: {state}, {log.lines} lines{begins}, {log.erased} erased"
        yield from (f"  {problem}" for problem in log.problems)
        if unsigned > 0 and not log.problems:
            yield f"  the last {unsigned} lines are not signed yet: of these nothing is known"
        if log.first:
            yield f"  lines 0 to {log.first - 1} were in files that were not given"
    yield from report.problems
    if report.torn:
        yield f"{report.torn} lines were cut off by a failed write; what they stood for was blocked"
    if report.unnumbered:
        yield f"{report.unnumbered} lines are of an earlier version: of these nothing is known"
    if not report.anchored:
        yield (
            "no anchor was given: whether log and checkpoints were set back together, or written "
            "anew by somebody who has the key, is not known (--redis, --anchor)"
        )


def read_entries(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the lines of audit logs that are JSON objects; other lines are left out."""
    for path in files:
        with path.open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                yield from _entry(line)


def _entry(line: str) -> Iterator[dict[str, Any]]:
    try:
        entry = json.loads(line)
    except ValueError:
        return
    if isinstance(entry, dict):
        yield entry


def _followed(stream: Any) -> Iterator[dict[str, Any]]:
    waiting = ""
    while True:
        waiting += stream.readline()
        if waiting.endswith("\n"):
            yield from _entry(waiting)
            waiting = ""
        else:
            time.sleep(POLL_SECONDS)


def _words(entry: dict[str, Any]) -> str:
    if entry.get("event") != EVENT_DECISION:
        rest = {k: v for k, v in entry.items() if k not in {"event", "at", "log", "n"}}
        return f"{entry.get('at', '')} {entry.get('event', '')} {json.dumps(rest)}"
    reasons = ", ".join(str(reason.get("code", "")) for reason in entry.get("reasons", ()))
    return (
        f"{entry.get('at', '')} {entry.get('action', '')!s:6} {entry.get('tool', '')} "
        f"by {entry.get('principal', '')} in {entry.get('session', '')}: {reasons or 'no reason'} "
        f"[{entry.get('decision_id', '')}]"
    )
