"""``guard keys``: keys that give way to others, with an overlap."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from guard.cli.running import Audit, now, on_record
from guard.credentials import key_ring
from guard.credentials.label_key import (
    audit_key_path,
    label_key_path,
    recording_key_path,
)
from guard.telemetry.audit_tree import Signer

app = typer.Typer(
    no_args_is_help=True, help="Keys of labels, audit log and recordings: list, rotate, retire."
)
EVENT = "guard.keys"


class Purpose(StrEnum):
    """Purpose of a key."""

    LABELS = "labels"
    AUDIT = "audit"
    RECORDINGS = "recordings"


NAMES = {
    Purpose.LABELS: ("label key", label_key_path),
    Purpose.AUDIT: ("audit key", audit_key_path),
    Purpose.RECORDINGS: ("recording key", recording_key_path),
}
Which = Annotated[Purpose, typer.Argument(help="Whose keys.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key", help="The key file (default: in the state directory).")
]


@app.command("list")
def list_keys(purpose: Which, key: KeyFile = None) -> None:
    """Print the keys of a ring: their ids, from when each is used, which are retired."""
    what, file = _place(purpose, key)
    ring = key_ring.load_ring(file, what, make=False)
    used = key_ring.key_id(ring.in_use(now())[0])
    for one in ring.keys:
        begins = datetime.fromtimestamp(one.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        since = f"from {begins} on" if one.since else "from the beginning"
        state = "retired" if not one.key else "used" if one.id == used else "accepted"
        typer.echo(f"{one.id}  {state}  {since}")


@app.command()
def rotate(
    purpose: Which,
    key: KeyFile = None,
    after: Annotated[
        float, typer.Option("--in", min=0, help="Seconds until it is used; accepted at once.")
    ] = key_ring.OVERLAP_SECONDS,
    audit: Audit = None,
) -> None:
    """Add a key to the ring: every process accepts it within two seconds, and uses it later.

    Where processes run on several machines, copy the ring to each before that.
    """
    what, file = _place(purpose, key)
    with on_record(audit) as log:
        made = key_ring.rotate(file, what, now(), after)
        log.event(EVENT, {"act": "rotated", "what": what, "id": made.id, "by": getpass.getuser()})
    typer.echo(f"{made.id}: accepted now, used in {after:g} s; {key_ring.ring_path(file)}")


@app.command()
def retire(
    purpose: Which,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="Of the key.")],
    key: KeyFile = None,
    audit: Audit = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask back.")] = False,
) -> None:
    """Forget a key: what only it has sealed is no longer good.

    Labels and pins that it sealed count as altered (untrusted) from then on; recordings that it
    enciphered cannot be read; of the audit key, the public half stays, and its signatures good.
    """
    what, file = _place(purpose, key)
    if not yes and purpose is not Purpose.AUDIT:
        typer.confirm("what only this key has sealed is lost; retire it?", abort=True)
    public = (lambda one: Signer(one).verifier.text) if purpose is Purpose.AUDIT else None
    with on_record(audit) as log:
        gone = key_ring.retire(file, what, identifier, now(), public)
        log.event(EVENT, {"act": "retired", "what": what, "id": gone.id, "by": getpass.getuser()})
    typer.echo(f"{gone.id} is retired")


def _place(purpose: Purpose, key: Path | None) -> tuple[str, Path]:
    what, default = NAMES[purpose]
    return what, key or default()
