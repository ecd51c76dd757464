"""``guard doctor``: is everything in place, and what to do where it is not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from guard.cli.options import takes_settings
from guard.cli.outcome import Code, given_input
from guard.settings import Settings, load_settings

if TYPE_CHECKING:
    from guard.runtime.doctor_checks import Checked


@takes_settings(
    *("policy", "reverse", "forward", "redis", "durability", "admin", "models", "ca"),
    *("authorization_server", "listen", "server", "credentials"),
)
def doctor(
    config: Annotated[Path | None, typer.Option(help="As for `guard run`.")] = None,
    envoy: Annotated[
        str | None,
        typer.Option(help="Configuration of the Envoy in front: a file, or its admin port's URL."),
    ] = None,
    direct: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT that must be out of reach here; for where agents run."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    **given: Any,
) -> None:
    """Check ports, authority, Redis, policy, models, clock and direct egress, and say what to do.

    Takes the options and GUARD_* variables of `guard run` and `guard decide`.  Exit code 1 where a
    check failed.

    Example: guard doctor -p policies/default.yaml -f 127.0.0.1:8080 --direct 1.1.1.1:443
    """
    with given_input():
        settings = load_settings(config, **given)
        found = asyncio.run(_all(settings, direct or []))
        if envoy:
            from guard.runtime.envoy_checks import check_envoy

            found += check_envoy(envoy, settings.listen, servers=len(settings.server))
    failed = any(one.status == "fail" for one in found)
    if as_json:
        typer.echo(json.dumps({"ok": not failed, "checks": [asdict(one) for one in found]}))
    else:
        for one in found:
            advice = f"  → {one.advice}" if one.advice else ""
            typer.echo(f"{one.status.value:<5} {one.name}: {one.detail}{advice}")
    raise typer.Exit(Code.FAILED if failed else Code.OK)


async def _all(settings: Settings, direct: list[str]) -> list[Checked]:
    from guard.runtime import doctor_checks as checks

    found = [checks.check_policy(settings.policy), checks.check_models(settings.models)]
    found += [*checks.check_extensions(), *checks.check_classifiers()]
    found += [*checks.check_ports(settings), *checks.check_principals(settings)]
    found += await checks.check_upstreams(settings)
    found += await checks.check_redis(settings)
    found.append(await checks.check_detection(settings))
    if settings.forward:
        found += checks.check_authority(settings.authority, checks.environment())
    return [*found, *(await checks.check_direct(direct))]
