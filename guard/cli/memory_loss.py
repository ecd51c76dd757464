"""``guard memory accept-loss``: the operator says that lost labels are dealt with."""

from __future__ import annotations

import asyncio
import getpass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from guard.adapters.credentials.label_key import load_label_key
from guard.adapters.redis.connection import RedisClient
from guard.adapters.redis.continuity import accept_loss
from guard.adapters.redis.endpoint import parse_endpoint
from guard.cli.memory_gate import Audit, put_on_record
from guard.cli.memory_labels import TIMEOUT_SECONDS, Key
from guard.cli.running import Redis, label_key_of
from guard.core.errors import GuardError
from guard.provenance.seal import Seal

if TYPE_CHECKING:
    from pathlib import Path

    from guard.provenance.store_continuity import StoreIdentity

EVENT = "guard.labels_loss_accepted"
EXIT_FAILED = 1
EXIT_INVALID = 3


def mount(app: typer.Typer) -> None:
    """Add the command to ``guard memory``."""
    app.command("accept-loss")(accept)


def accept(
    redis: Redis,
    reason: Annotated[str, typer.Option(help="Why; it is audited.")],
    label_key: Key = None,
    audit: Audit = None,
) -> None:
    """Count labels as complete again after the store was lost, replaced or rolled back.

    What was read before the loss and not imported since is merely unknown from then on.
    """
    if not reason.strip():
        typer.echo("guard memory: give a --reason", err=True)
        raise typer.Exit(EXIT_INVALID)
    # The line comes first: a loss that nobody recorded as accepted must not be forgotten.
    fields = {"reason": reason, "by": getpass.getuser()}
    try:
        put_on_record(audit, EVENT, fields, required=True)
        lost = asyncio.run(_accepted(redis, label_key or label_key_of(redis)))
    except GuardError as error:
        typer.echo(f"guard memory: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    until = datetime.fromtimestamp(lost.incomplete_until, UTC).strftime("%Y-%m-%d")
    typer.echo(
        f"labels were incomplete until {until}, and count as complete for every guard within "
        "ten seconds"
    )


async def _accepted(redis: str, label_key: Path | None) -> StoreIdentity:
    client = RedisClient(parse_endpoint(redis), timeout=TIMEOUT_SECONDS)
    try:
        return await accept_loss(client, Seal(load_label_key(label_key)))
    finally:
        await client.aclose()
