"""``guard decide``: judge the calls of an Envoy that stands in front, until SIGTERM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from guard.cli.run import (
    Admin,
    Audit,
    Data,
    LabelKey,
    Policies,
    Redis,
    UpstreamAuthorities,
    Workers,
)
from guard.core.errors import InputError
from guard.settings import UNIX, load_settings


def decide(
    policy: Policies = None,
    listen: Annotated[
        list[str] | None,
        typer.Option("--listen", "-l", help="unix:PATH or HOST:PORT where Envoy asks; repeat."),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server", "-s", help="[PRINCIPAL@]NAME=URL: a server that a route names; repeat."
        ),
    ] = None,
    front_secret: Annotated[
        Path | None, typer.Option(help="File with the secret that Envoy shows; for HOST:PORT.")
    ] = None,
    egress: Annotated[
        str | None,
        typer.Option(help="unix:PATH of an Envoy that takes allowed calls on (default: direct)."),
    ] = None,
    redis: Redis = None,
    data: Data = None,
    admin: Admin = None,
    audit: Audit = None,
    credentials: Annotated[
        Path | None, typer.Option(help="TOML file: principals, and how they prove who they are.")
    ] = None,
    label_key: LabelKey = None,
    upstream_ca: UpstreamAuthorities = None,
    workers: Workers = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with any of the settings of `guard run`.")
    ] = None,
) -> None:
    """Judge the calls of an Envoy; every setting of `guard run` is also GUARD_* or in --config.

    Example: guard decide -p policies/default.yaml -l unix:/run/guard/decide.sock
    -s mail=http://127.0.0.1:9000/mcp
    """
    given = {key: value for key, value in locals().items() if key != "config"}
    settings = load_settings(config, **given)
    for name, value in (("policy FILE", settings.policy), ("listen unix:PATH", settings.listen)):
        if not value:
            raise InputError(f"nothing to do: give at least one --{name}")
    if not settings.server:
        raise InputError("nothing to do: give at least one --server NAME=URL")
    if settings.reverse or settings.forward:
        raise InputError("listeners of its own (--reverse, --forward) are those of `guard run`")
    if settings.front_secret is None and not all(x.startswith(UNIX) for x in settings.listen):
        raise InputError(
            "whoever reaches HOST:PORT could say who anybody is: give --front-secret FILE as well"
        )
    from guard.runtime.supervisor import Supervisor

    raise typer.Exit(Supervisor(settings).run())
