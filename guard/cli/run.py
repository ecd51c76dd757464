"""``guard run``: serve until SIGTERM."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from guard.core.errors import InputError
from guard.settings import PepKind, load_settings

# Options that `guard decide` has as well.
Policies = Annotated[
    list[Path] | None, typer.Option("--policy", "-p", help="Policy file; repeat to merge.")
]
Redis = Annotated[
    str | None,
    typer.Option(help="`embedded` (the default), or a server's, Cluster's, Sentinels' URL."),
]
Data = Annotated[
    Path | None,
    typer.Option(help="Directory that the embedded Redis keeps its state in, or `memory`."),
]
Admin = Annotated[str | None, typer.Option(help="HOST:PORT of /metrics, /healthz, /readyz.")]
Audit = Annotated[Path | None, typer.Option(help="Append one JSON line per decision.")]
LabelKey = Annotated[
    Path | None, typer.Option(help="Key file of labels and grants; made if absent.")
]
UpstreamAuthorities = Annotated[
    Path | None, typer.Option(help="PEM file of more authorities to trust upstream.")
]
Workers = Annotated[
    int | None, typer.Option(help="Processes that judge calls (default 1; 0: one per core).")
]


def run(
    context: typer.Context,
    policy: Policies = None,
    reverse: Annotated[
        list[str] | None,
        typer.Option(
            "--reverse",
            "-r",
            help="[PRINCIPAL@]HOST:PORT[/NAME]=URL: listen here, forward there (its path: MCP).",
        ),
    ] = None,
    forward: Annotated[
        list[str] | None,
        typer.Option("--forward", "-f", help="HOST:PORT: be an agent's HTTPS_PROXY; repeat."),
    ] = None,
    trust_forwarded: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT of a listener whose X-Forwarded-* are its front proxy's."),
    ] = None,
    pep: Annotated[
        PepKind | None,
        typer.Option(help="What serves reverse listeners (default: lean where it can)."),
    ] = None,
    model_api: Annotated[
        list[str] | None,
        typer.Option(help="HOST[:PORT] of a model API (default: the three well-known); repeat."),
    ] = None,
    authorization_server: Annotated[
        list[str] | None,
        typer.Option(help="https://ISSUER at which clients of listeners may log in; repeat."),
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="Directory of the authority that opens TLS (`guard ca`).")
    ] = None,
    upstream_ca: UpstreamAuthorities = None,
    upstream_proxy: Annotated[
        str | None, typer.Option(help="http://host:port that forward listeners go through.")
    ] = None,
    redis: Redis = None,
    data: Data = None,
    durability: Annotated[
        str | None,
        typer.Option(help="What a write must reach: relaxed (default), replicated or fsync."),
    ] = None,
    admin: Admin = None,
    audit: Audit = None,
    audit_key: Annotated[
        Path | None, typer.Option(help="Key file that signs the audit log; made if absent.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Directory of recordings: whole exchanges, enciphered; none by default."),
    ] = None,
    record_key: Annotated[
        Path | None, typer.Option(help="Key file of recordings; made if absent.")
    ] = None,
    record_limit: Annotated[
        str | None, typer.Option(help="Bytes of recordings that are kept, e.g. 4g (default 1g).")
    ] = None,
    record_days: Annotated[
        float | None, typer.Option(help="Days for which recordings are kept (default 7).")
    ] = None,
    otlp: Annotated[
        str | None, typer.Option(help="OTLP receiver of spans: http://localhost:4318/v1/traces.")
    ] = None,
    console: Annotated[
        str | None, typer.Option(help="HOST:PORT of the pages for people; needs --audit.")
    ] = None,
    console_people: Annotated[
        Path | None, typer.Option(help="TOML file: who may sign in, and in which roles.")
    ] = None,
    console_url: Annotated[
        str | None, typer.Option(help="Under which people reach the console, if not its address.")
    ] = None,
    console_webhooks: Annotated[
        Path | None, typer.Option(help="TOML file: who is told that a person is asked.")
    ] = None,
    console_certificate: Annotated[
        Path | None, typer.Option(help="PEM file with certificate and key of the console.")
    ] = None,
    console_commit: Annotated[
        bool | None,
        typer.Option(
            "--console-commit", help="The console may commit changes of the policy files."
        ),
    ] = None,
    console_memory: Annotated[
        list[str] | None,
        typer.Option(help="URL of a listener of this guard before a memory: repairs go there."),
    ] = None,
    console_memory_secret: Annotated[
        Path | None, typer.Option(help="File: secret of the principal who writes repairs.")
    ] = None,
    models: Annotated[
        Path | None, typer.Option(help="Model directory with its manifest (default: shipped).")
    ] = None,
    credentials: Annotated[
        Path | None, typer.Option(help="TOML file: principal = sha256 of its proxy secret.")
    ] = None,
    write_credentials: Annotated[
        Path | None, typer.Option(help="TOML file: write credentials of memory stores.")
    ] = None,
    memory_checker: Annotated[
        str | None, typer.Option(help="Command that looks again at writes of high memory classes.")
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option(help="Unix socket for `guard stdio` wrappers.")
    ] = None,
    label_key: LabelKey = None,
    prompt_credentials: Annotated[
        Path | None, typer.Option(help="TOML file: front end = sha256 of its secret.")
    ] = None,
    body_limit: Annotated[str | None, typer.Option(help="Largest body, e.g. 16m.")] = None,
    held_limit: Annotated[
        str | None, typer.Option(help="Most that is held of all unfinished messages, e.g. 64m.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Requests that a worker judges at once; 0: no limit.")
    ] = None,
    queue: Annotated[int | None, typer.Option(help="Requests that wait for a worker.")] = None,
    queue_timeout: Annotated[
        float | None, typer.Option(help="Seconds one waits before it is told to retry.")
    ] = None,
    connections: Annotated[
        int | None, typer.Option(help="Clients' connections to a worker; 0: what it can have.")
    ] = None,
    busy_poll: Annotated[
        int | None, typer.Option(help="Microseconds to look for news before sleeping; 0: none.")
    ] = None,
    state_timeout: Annotated[
        float | None, typer.Option(help="Seconds a call to Redis may take.")
    ] = None,
    heartbeat: Annotated[
        float | None, typer.Option(help="Seconds without a heartbeat before a worker is replaced.")
    ] = None,
    drain: Annotated[
        float | None, typer.Option(help="Seconds for calls in flight at stop.")
    ] = None,
    workers: Workers = None,
    reload: Annotated[
        float | None,
        typer.Option(help="Seconds between looks at the policy files; 0: at SIGHUP only."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with any of these settings.")
    ] = None,
) -> None:
    """Stand between agents and their tools; every setting is also GUARD_* in the environment.

    Example: guard run -p policies/default.yaml -r 127.0.0.1:8080=http://127.0.0.1:9000
    """
    given = {key: value for key, value in locals().items() if key not in {"context", "config"}}
    settings = load_settings(config, **given)
    if not settings.policy or not (settings.modes or settings.decisions):
        missing = "--policy FILE" if not settings.policy else "--reverse or --forward"
        raise InputError(f"nothing to do: give at least one {missing}")
    if settings.console and settings.audit is None:
        raise InputError("the console shows the audit log: give --audit as well")
    if settings.console and not (all(map(find_spec, ("authlib", "jinja2", "pygal")))):
        raise InputError("the console: pip install agent-egress-guard[console]")
    # A worker reads the policy, and ends with what is wrong in it.
    from guard.supervisor import Supervisor

    raise typer.Exit(Supervisor(settings, context.obj).run())
