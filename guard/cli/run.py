"""``guard run`` and ``guard decide``: serve until SIGTERM."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from guard.cli.options import SETTINGS, takes_settings
from guard.cli.running import Key, Redis
from guard.core.errors import InputError
from guard.settings import UNIX, load_settings

Config = Annotated[Path | None, typer.Option(help="TOML file with any of these settings.")]
_OF_DECIDE: Final = ("listen", "server", "front_secret", "egress")


@takes_settings(*(name for name in SETTINGS if name not in _OF_DECIDE))
def run(config: Config = None, **given: Any) -> None:
    """Stand between agents and their tools; every setting is also GUARD_* in the environment.

    Example: guard run -p policies/default.yaml -r 127.0.0.1:8080=http://127.0.0.1:9000
    """
    settings = load_settings(config, **given)
    if not settings.policy or not (settings.reverse or settings.forward or settings.decisions):
        missing = "--policy FILE" if not settings.policy else "--reverse or --forward"
        raise InputError(f"nothing to do: give at least one {missing}")
    if settings.console and settings.audit is None:
        raise InputError("the console shows the audit log: give --audit as well")
    if settings.console and not (all(map(find_spec, ("authlib", "jinja2")))):
        raise InputError("the console: pip install agent-egress-guard[console]")
    # A worker reads the policy, and ends with what is wrong in it.
    from guard.runtime.supervisor import Supervisor

    raise typer.Exit(Supervisor(settings).run())


@takes_settings(
    *("policy", *_OF_DECIDE, "redis", "data", "admin", "audit", "credentials", "label_key"),
    *("upstream_ca", "workers"),
)
def decide(config: Config = None, **given: Any) -> None:
    """Judge the calls of an Envoy; every setting of `guard run` is also GUARD_* or in --config.

    Example: guard decide -p policies/default.yaml -l unix:/run/guard/decide.sock
    -s mail=http://127.0.0.1:9000/mcp
    """
    settings = load_settings(config, **given)
    needed = {"policy FILE": settings.policy, "listen unix:PATH": settings.listen}
    for name, value in (needed | {"server NAME=URL": settings.server}).items():
        if not value:
            raise InputError(f"nothing to do: give at least one --{name}")
    if settings.reverse or settings.forward:
        raise InputError("listeners of its own (--reverse, --forward) are those of `guard run`")
    if settings.front_secret is None and not all(x.startswith(UNIX) for x in settings.listen):
        raise InputError(
            "whoever reaches HOST:PORT could say who anybody is: give --front-secret FILE as well"
        )
    from guard.runtime.supervisor import Supervisor

    raise typer.Exit(Supervisor(settings).run())


def console(
    address: Annotated[str, typer.Argument(help="HOST:PORT to serve at.")],
    audit: Annotated[Path, typer.Option(help="An audit log; acts of people are recorded there.")],
    redis: Redis,
    log: Annotated[
        list[Path] | None,
        typer.Option(help="Audit log of another guard, shown as well; repeat."),
    ] = None,
    label_key: Key = None,
    audit_key: Annotated[Path | None, typer.Option(help="Key file of the audit log.")] = None,
    policy: Annotated[
        list[Path] | None,
        typer.Option("--policy", "-p", help="The guards' policy; repeat to merge."),
    ] = None,
    people: Annotated[Path | None, typer.Option(help="TOML file: who may sign in.")] = None,
    webhooks: Annotated[
        Path | None, typer.Option(help="TOML file: webhooks about waiting requests.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Under which people reach it.")] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="PEM file with certificate, key.")
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit", help="It may commit changes of the policy files.")
    ] = False,
    memory: Annotated[
        list[str] | None,
        typer.Option(help="URL of a guard's listener before a memory: repairs go there; repeat."),
    ] = None,
    memory_secret: Annotated[
        Path | None, typer.Option(help="File: secret of the principal who writes repairs.")
    ] = None,
) -> None:
    """Serve the console of guards that share one Redis and one audit log."""
    try:
        from guard.console.server import serve
    except ImportError as error:
        raise InputError("the console: pip install agent-egress-guard[console]") from error
    settings = load_settings(
        None,
        console=address,
        audit=audit,
        audit_key=audit_key,
        console_logs=log,
        policy=policy,
        console_people=people,
        console_url=url,
        console_webhooks=webhooks,
        console_certificate=certificate,
        console_commit=commit,
        console_memory=memory,
        console_memory_secret=memory_secret,
    )
    asyncio.run(serve(settings, redis, label_key))
