"""``guard console``: the pages for people, beside guards that run elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from guard.cli.running import Key, Redis
from guard.core.errors import InputError
from guard.settings import load_settings


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
    record: Annotated[
        Path | None, typer.Option(help="The guards' recordings, to try policies on.")
    ] = None,
    record_key: Annotated[Path | None, typer.Option(help="Key file of the recordings.")] = None,
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
        record=record,
        record_key=record_key,
        console_commit=commit,
        console_memory=memory,
        console_memory_secret=memory_secret,
    )
    asyncio.run(serve(settings, redis, label_key))
