"""``guard approvals …``: calls that were asked about, released by a human."""

from __future__ import annotations

from typing import Annotated

import typer

from guard.adapters.redis.operators import LabelOperator
from guard.cli.outcome import plain
from guard.cli.running import Key, Redis, State, Tenant, act_on, now
from guard.core.policy import StateLimits


def grant(
    decision: Annotated[str, typer.Argument(help="Decision id of the call that was asked about.")],
    redis: Redis,
    label_key: Key = None,
    tenant: Tenant = "default",
) -> None:
    """Release one call that was refused with `approval_required`: this very call, once."""

    async def approve(state: State) -> dict[str, str]:
        return await label_operator(state, tenant).approve(decision, now())

    asked = act_on(redis, approve, label_key=label_key)
    typer.echo(
        f"granted: {plain(asked['tool'])} for principal {plain(asked['principal'])}, session "
        f"{plain(asked['session'])}; the same call goes out once, within {asked['ttl']} s"
    )


def label_operator(state: State, tenant: str) -> LabelOperator:
    """Return what reads and writes labels and grants of a tenant by hand."""
    return LabelOperator(state.store, state.seal, StateLimits(), tenant)
