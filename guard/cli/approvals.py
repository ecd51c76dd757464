"""``guard approvals …``: calls that were asked about, released by a human."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from guard.adapters.redis.operators import LabelOperator
from guard.cli.outcome import plain
from guard.cli.running import Key, Redis, State, Tenant, act_on, now
from guard.core.policy import StateLimits

if TYPE_CHECKING:
    from guard.core.model import Json
    from guard.provenance.established import Established


def grant(
    decision: Annotated[str, typer.Argument(help="Decision id of the call that was asked about.")],
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
    remember: Annotated[
        int,
        typer.Option(
            min=0, help="Days for which its receivers are good for this principal and tool."
        ),
    ] = 0,
) -> None:
    """Release one call that was refused with `approval_required`: this very call, once."""

    async def approve(state: State) -> dict[str, str]:
        return await label_operator(state, tenant).approve(
            decision, now(), remember=remember * 86400.0
        )

    asked = act_on(redis, approve, label_key=label_key)
    typer.echo(
        f"granted: {plain(asked['tool'])} for principal {plain(asked['principal'])}, session "
        f"{plain(asked['session'])}; the same call goes out once, within {asked['ttl']} s"
    )


def show(
    decision: Annotated[str, typer.Argument(help="Decision id of the call that was asked about.")],
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Show who asks: tool, receivers with the rung each stands on, what would leave."""

    async def read(state: State) -> dict[str, Json]:
        return await label_operator(state, tenant).asked(decision)

    asked = act_on(redis, read, label_key=label_key)
    for name in ("tool", "server", "upstream", "principal", "session"):
        typer.echo(f"{name}: {plain(asked[name])}")
    for kind, receiver, rung in asked["receivers"]:
        typer.echo(f"receiver: {plain(kind)} {plain(receiver)} ({plain(rung)})")
    typer.echo(f"leaves: {plain(asked['excerpt'])}")


def deny(
    decision: Annotated[str, typer.Argument(help="Decision id of the call that was asked about.")],
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Refuse a call that waits: its id can no longer be approved."""

    async def take(state: State) -> bool:
        return await label_operator(state, tenant).deny(decision)

    was_there = act_on(redis, take, label_key=label_key)
    typer.echo("denied" if was_there else "no call waits under this id")


def revoke(
    mark: Annotated[str, typer.Argument(help="Mark of an established receiver, in hex.")],
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Take an established receiver away: the next send to it is judged anew."""
    try:
        wanted = bytes.fromhex(mark)
    except ValueError as error:
        raise typer.BadParameter("a mark is hexadecimal") from error
    if not wanted:
        raise typer.BadParameter("a mark is hexadecimal")

    async def take(state: State) -> bool:
        return await label_operator(state, tenant).revoke(wanted)

    was_there = act_on(redis, take, label_key=label_key)
    typer.echo("revoked" if was_there else "no receiver is established under this mark")


def established(redis: Redis, label_key: Key = None, tenant: Tenant = "default") -> None:
    """List the receivers that principals may send to again, each with the mark to revoke it by."""

    async def read(state: State) -> list[Established]:
        return await label_operator(state, tenant).established()

    for one in act_on(redis, read, label_key=label_key):
        parts = (one.principal, one.tool, one.kind, one.receiver)
        typer.echo(f"{one.mark.hex()}  " + "  ".join(map(plain, parts)))


def label_operator(state: State, tenant: str) -> LabelOperator:
    """Return what reads and writes labels and grants of a tenant by hand."""
    return LabelOperator(state.store, state.seal, StateLimits(), tenant)
