"""``guard run`` and ``guard decide``: serve until SIGTERM."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from guard.core.errors import InputError
from guard.settings import UNIX, PepKind, load_settings

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
# Options of `guard run` alone.
_Reverse = Annotated[
    list[str] | None,
    typer.Option(
        "--reverse",
        "-r",
        help="[PRINCIPAL@]HOST:PORT[/NAME]=URL: listen here, forward there (its path: MCP).",
    ),
]
_Forward = Annotated[
    list[str] | None,
    typer.Option("--forward", "-f", help="HOST:PORT: be an agent's HTTPS_PROXY; repeat."),
]
_TrustForwarded = Annotated[
    list[str] | None,
    typer.Option(help="HOST:PORT of a listener whose X-Forwarded-* are its front proxy's."),
]
_Pep = Annotated[
    PepKind | None,
    typer.Option(help="What serves reverse listeners: `lean`, which `auto` chooses."),
]
_ModelApi = Annotated[
    list[str] | None,
    typer.Option(help="HOST[:PORT] of a model API (default: the three well-known); repeat."),
]
_AuthorizationServer = Annotated[
    list[str] | None,
    typer.Option(help="https://ISSUER at which clients of listeners may log in; repeat."),
]
_Ca = Annotated[
    Path | None, typer.Option(help="Directory of the authority that opens TLS (`guard ca`).")
]
_UpstreamProxy = Annotated[
    str | None, typer.Option(help="http://host:port that forward listeners go through.")
]
_Durability = Annotated[
    str | None,
    typer.Option(help="What a write must reach: relaxed (default), replicated or fsync."),
]
_AuditKey = Annotated[
    Path | None, typer.Option(help="Key file that signs the audit log; made if absent.")
]
_Record = Annotated[
    Path | None,
    typer.Option(help="Directory of recordings: whole exchanges, enciphered; none by default."),
]
_RecordKey = Annotated[Path | None, typer.Option(help="Key file of recordings; made if absent.")]
_RecordLimit = Annotated[
    str | None, typer.Option(help="Bytes of recordings that are kept, e.g. 4g (default 1g).")
]
_RecordDays = Annotated[
    float | None, typer.Option(help="Days for which recordings are kept (default 7).")
]
_Otlp = Annotated[
    str | None, typer.Option(help="OTLP receiver of spans: http://localhost:4318/v1/traces.")
]
_Console = Annotated[
    str | None, typer.Option(help="HOST:PORT of the pages for people; needs --audit.")
]
_ConsolePeople = Annotated[
    Path | None, typer.Option(help="TOML file: who may sign in, and in which roles.")
]
_ConsoleUrl = Annotated[
    str | None, typer.Option(help="Under which people reach the console, if not its address.")
]
_ConsoleWebhooks = Annotated[
    Path | None, typer.Option(help="TOML file: webhooks about waiting requests.")
]
_ConsoleCertificate = Annotated[
    Path | None, typer.Option(help="PEM file with certificate and key of the console.")
]
_ConsoleCommit = Annotated[
    bool | None,
    typer.Option("--console-commit", help="The console may commit changes of the policy files."),
]
_ConsoleMemory = Annotated[
    list[str] | None,
    typer.Option(help="URL of a listener of this guard before a memory: repairs go there."),
]
_ConsoleMemorySecret = Annotated[
    Path | None, typer.Option(help="File: secret of the principal who writes repairs.")
]
_Models = Annotated[
    Path | None, typer.Option(help="Model directory with its manifest (default: shipped).")
]
_Credentials = Annotated[
    Path | None, typer.Option(help="TOML file: principal = sha256 of its proxy secret.")
]
_WriteCredentials = Annotated[
    Path | None, typer.Option(help="TOML file: write credentials of memory stores.")
]
_MemoryChecker = Annotated[
    str | None, typer.Option(help="Command that looks again at writes of high memory classes.")
]
_Decisions = Annotated[Path | None, typer.Option(help="Unix socket for `guard stdio` wrappers.")]
_PromptCredentials = Annotated[
    Path | None, typer.Option(help="TOML file: front end = sha256 of its secret.")
]
_BodyLimit = Annotated[str | None, typer.Option(help="Largest body, e.g. 16m.")]
_HeldLimit = Annotated[
    str | None, typer.Option(help="Most that is held of all unfinished messages, e.g. 64m.")
]
_Concurrency = Annotated[
    int | None, typer.Option(help="Requests that a worker judges at once; 0: no limit.")
]
_Queue = Annotated[int | None, typer.Option(help="Requests that wait for a worker.")]
_QueueTimeout = Annotated[
    float | None, typer.Option(help="Seconds one waits before it is told to retry.")
]
_Connections = Annotated[
    int | None, typer.Option(help="Clients' connections to a worker; 0: what it can have.")
]
_BusyPoll = Annotated[
    int | None, typer.Option(help="Microseconds to look for news before sleeping; 0: none.")
]
_StateTimeout = Annotated[float | None, typer.Option(help="Seconds a call to Redis may take.")]
_Heartbeat = Annotated[
    float | None, typer.Option(help="Seconds without a heartbeat before a worker is replaced.")
]
_Drain = Annotated[float | None, typer.Option(help="Seconds for calls in flight at stop.")]
_Reload = Annotated[
    float | None,
    typer.Option(help="Seconds between looks at the policy files; 0: at SIGHUP only."),
]
_Config = Annotated[Path | None, typer.Option(help="TOML file with any of these settings.")]


def run(
    policy: Policies = None,
    reverse: _Reverse = None,
    forward: _Forward = None,
    trust_forwarded: _TrustForwarded = None,
    pep: _Pep = None,
    model_api: _ModelApi = None,
    authorization_server: _AuthorizationServer = None,
    ca: _Ca = None,
    upstream_ca: UpstreamAuthorities = None,
    upstream_proxy: _UpstreamProxy = None,
    redis: Redis = None,
    data: Data = None,
    durability: _Durability = None,
    admin: Admin = None,
    audit: Audit = None,
    audit_key: _AuditKey = None,
    record: _Record = None,
    record_key: _RecordKey = None,
    record_limit: _RecordLimit = None,
    record_days: _RecordDays = None,
    otlp: _Otlp = None,
    console: _Console = None,
    console_people: _ConsolePeople = None,
    console_url: _ConsoleUrl = None,
    console_webhooks: _ConsoleWebhooks = None,
    console_certificate: _ConsoleCertificate = None,
    console_commit: _ConsoleCommit = None,
    console_memory: _ConsoleMemory = None,
    console_memory_secret: _ConsoleMemorySecret = None,
    models: _Models = None,
    credentials: _Credentials = None,
    write_credentials: _WriteCredentials = None,
    memory_checker: _MemoryChecker = None,
    decisions: _Decisions = None,
    label_key: LabelKey = None,
    prompt_credentials: _PromptCredentials = None,
    body_limit: _BodyLimit = None,
    held_limit: _HeldLimit = None,
    concurrency: _Concurrency = None,
    queue: _Queue = None,
    queue_timeout: _QueueTimeout = None,
    connections: _Connections = None,
    busy_poll: _BusyPoll = None,
    state_timeout: _StateTimeout = None,
    heartbeat: _Heartbeat = None,
    drain: _Drain = None,
    workers: Workers = None,
    reload: _Reload = None,
    config: _Config = None,
) -> None:
    """Stand between agents and their tools; every setting is also GUARD_* in the environment.

    Example: guard run -p policies/default.yaml -r 127.0.0.1:8080=http://127.0.0.1:9000
    """
    given = {key: value for key, value in locals().items() if key != "config"}
    settings = load_settings(config, **given)
    if not settings.policy or not (settings.reverse or settings.forward or settings.decisions):
        missing = "--policy FILE" if not settings.policy else "--reverse or --forward"
        raise InputError(f"nothing to do: give at least one {missing}")
    if settings.console and settings.audit is None:
        raise InputError("the console shows the audit log: give --audit as well")
    if settings.console and not (all(map(find_spec, ("authlib", "jinja2", "sse_starlette")))):
        raise InputError("the console: pip install agent-egress-guard[console]")
    # A worker reads the policy, and ends with what is wrong in it.
    from guard.runtime.supervisor import Supervisor

    raise typer.Exit(Supervisor(settings).run())


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
