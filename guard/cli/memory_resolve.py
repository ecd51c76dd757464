"""``guard memory resolve``: find out what became of writes whose answers were lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from guard.adapters.memory_stores.fate_probe import resolve as settle
from guard.adapters.redis.connection import RedisClient
from guard.adapters.redis.endpoint import parse_endpoint
from guard.adapters.redis.gate_operator import GateOperator
from guard.core.errors import GuardError, PolicyError
from guard.core.memory import Fate
from guard.policy_files import load_policies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.memory_policy import MemoryPolicy, ReadBack

SECONDS = 15.0


def mount(app: typer.Typer) -> None:
    """Add the command to ``guard memory``."""
    app.command()(resolve)


def resolve(
    policy: Annotated[list[Path], typer.Option("--policy", "-p", help="As the guard has it.")],
    server: Annotated[str, typer.Option(help="URL of the memory server's MCP endpoint.")],
    redis: Annotated[str, typer.Option(envvar="GUARD_REDIS", help="Redis URL of the guard.")],
    older_than: Annotated[
        float | None, typer.Option(help="Seconds in flight (default: `unknown_after`).")
    ] = None,
    tenant: Annotated[str, typer.Option(help="Whose memory.")] = "default",
) -> None:
    """Read lost writes back from the store: found, abandoned, or reported as unknown.

    Nothing is sent again.  Exit code 2 where the fate of a write stays unknown.
    """
    try:
        memory = load_policies(policy).memory
        if memory is None:
            message = "the policy has no `memory` section"
            raise GuardError(message)
        after = memory.limits.unknown_after if older_than is None else older_than
        found = asyncio.run(_resolve(memory, server, redis, tenant, after))
    except PolicyError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(3) from error
    except (GuardError, OSError) as error:
        typer.echo(f"guard memory: {error}", err=True)
        raise typer.Exit(1) from error
    for identifier, fate in found:
        typer.echo(f"{identifier} {fate.value}")
    if any(fate is Fate.UNKNOWN for _, fate in found):
        raise typer.Exit(2)


async def _resolve(
    memory: MemoryPolicy, server: str, redis: str, tenant: str, older_than: float
) -> list[tuple[str, Fate]]:
    async def ask(_: str, read_back: ReadBack, arguments: Mapping[str, Any]) -> str:
        from guard.adapters.mcp_client.store_recall import recall

        return await recall(server, read_back.tool, dict(arguments))

    client = RedisClient(parse_endpoint(redis), timeout=SECONDS)
    try:
        return await settle(GateOperator(client, tenant=tenant), memory, ask, older_than)
    finally:
        await client.aclose()
