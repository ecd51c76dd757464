"""``guard erase``: take a person's data out of the audit log and the recordings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from guard.cli.running import on_record
from guard.core.errors import InputError
from guard.credentials.key_ring import load_ring
from guard.credentials.label_key import recording_key_path
from guard.telemetry import recordings as recording_files
from guard.telemetry.audit_tree import EVENT_ERASURE
from guard.telemetry.audit_tree import erase as erase_lines

if TYPE_CHECKING:
    from guard.core.model import Json

LINES_AT_A_TIME = 500


def erase(
    reason: Annotated[str, typer.Option(help="Why; it stands in the audit log.")],
    principal: Annotated[str, typer.Option(help="The principal to erase.")] = "",
    session: Annotated[str, typer.Option(help="Or one session.")] = "",
    audit: Annotated[
        list[Path] | None,
        typer.Option(exists=True, help="Audit log, the one in use last; repeat for rotated ones."),
    ] = None,
    recordings: Annotated[
        Path | None, typer.Option(exists=True, help="Directory of recordings.")
    ] = None,
    record_key: Annotated[Path | None, typer.Option(help="Key file of the recordings.")] = None,
) -> None:
    """Erase a principal or a session; the audit log still verifies afterwards.

    A line of the log keeps its place in the tree and loses what it says; the erasure itself is a
    line. A segment that is being recorded now is left out: erase again once it is closed. Labels in
    the state end by the policy's `state` limits.
    """
    if not (principal or session) or not (audit or recordings):
        raise InputError("say whom (--principal or --session) and where (--audit, --recordings)")

    def concerns(fields: dict[str, Json]) -> bool:
        wanted = {"principal": principal, "session": session}
        return all(not value or fields.get(name) == value for name, value in wanted.items())

    if audit:
        lines = [pair for path in audit for pair in erase_lines(path, concerns)]
        with on_record(audit[-1], required=True) as log:
            for start in range(0, len(lines), LINES_AT_A_TIME):
                part = [list(pair) for pair in lines[start : start + LINES_AT_A_TIME]]
                log.event(EVENT_ERASURE, {"reason": reason, "lines": part})
        typer.echo(f"{len(lines)} audit lines erased")
    if recordings:
        ring = load_ring(record_key or recording_key_path(), "recording key", make=False)
        key, older = ring.readers()
        typer.echo(f"{recording_files.erase(recordings, key, concerns, older)} records erased")
