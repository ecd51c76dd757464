"""Options that commands share: those of the guard's settings, by their names."""

from __future__ import annotations

from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from guard.settings import PepKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SETTINGS: Final[dict[str, tuple[Any, ...]]] = {
    "policy": (list[Path], "Policy file; repeat to merge.", "--policy", "-p"),
    "reverse": (
        list[str],
        "[PRINCIPAL@]HOST:PORT[/NAME]=URL: listen here, forward there (its path: MCP).",
        "--reverse",
        "-r",
    ),
    "forward": (list[str], "HOST:PORT: be an agent's HTTPS_PROXY; repeat.", "--forward", "-f"),
    "trust_forwarded": (
        list[str],
        "HOST:PORT of a listener whose X-Forwarded-* are its front proxy's.",
    ),
    "pep": (PepKind, "What serves reverse listeners: `lean`, which `auto` chooses."),
    "model_api": (list[str], "HOST[:PORT] of a model API (default: the three well-known); repeat."),
    "authorization_server": (
        list[str],
        "https://ISSUER at which clients of listeners may log in; repeat.",
    ),
    "ca": (Path, "Directory of the authority that opens TLS (`guard ca`)."),
    "upstream_ca": (Path, "PEM file of more authorities to trust upstream."),
    "upstream_proxy": (str, "http://host:port that forward listeners go through."),
    "redis": (str, "`embedded` (the default), or a server's, Cluster's, Sentinels' URL."),
    "data": (Path, "Directory that the embedded Redis keeps its state in, or `memory`."),
    "durability": (str, "What a write must reach: relaxed (default), replicated or fsync."),
    "admin": (str, "HOST:PORT of /metrics, /healthz, /readyz."),
    "audit": (Path, "Append one JSON line per decision."),
    "audit_key": (Path, "Key file that signs the audit log; made if absent."),
    "record": (Path, "Directory of recordings: whole exchanges, enciphered; none by default."),
    "record_key": (Path, "Key file of recordings; made if absent."),
    "record_limit": (str, "Bytes of recordings that are kept, e.g. 4g (default 1g)."),
    "record_days": (float, "Days for which recordings are kept (default 7)."),
    "otlp": (str, "OTLP receiver of spans: http://localhost:4318/v1/traces."),
    "console": (str, "HOST:PORT of the pages for people; needs --audit."),
    "console_people": (Path, "TOML file: who may sign in, and in which roles."),
    "console_url": (str, "Under which people reach the console, if not its address."),
    "console_webhooks": (Path, "TOML file: webhooks about waiting requests."),
    "console_certificate": (Path, "PEM file with certificate and key of the console."),
    "console_commit": (
        bool,
        "The console may commit changes of the policy files.",
        "--console-commit",
    ),
    "console_memory": (
        list[str],
        "URL of a listener of this guard before a memory: repairs go there.",
    ),
    "console_memory_secret": (Path, "File: secret of the principal who writes repairs."),
    "models": (Path, "Model directory with its manifest (default: shipped)."),
    "credentials": (Path, "TOML file: principals, and how they prove who they are."),
    "write_credentials": (Path, "TOML file: write credentials of memory stores."),
    "memory_checker": (str, "Command that looks again at writes of high memory classes."),
    "decisions": (Path, "Unix socket for `guard stdio` wrappers."),
    "label_key": (Path, "Key file of labels and grants; made if absent."),
    "prompt_credentials": (Path, "TOML file: front end = sha256 of its secret."),
    "body_limit": (str, "Largest body, e.g. 16m."),
    "held_limit": (str, "Most that is held of all unfinished messages, e.g. 64m."),
    "concurrency": (int, "Requests that a worker judges at once; 0: no limit."),
    "queue": (int, "Requests that wait for a worker."),
    "queue_timeout": (float, "Seconds one waits before it is told to retry."),
    "connections": (int, "Clients' connections to a worker; 0: what it can have."),
    "busy_poll": (int, "Microseconds to look for news before sleeping; 0: none."),
    "state_timeout": (float, "Seconds a call to Redis may take."),
    "heartbeat": (float, "Seconds without a heartbeat before a worker is replaced."),
    "drain": (float, "Seconds for calls in flight at stop."),
    "workers": (int, "Processes that judge calls (default 1; 0: one per core)."),
    "reload": (float, "Seconds between looks at the policy files; 0: at SIGHUP only."),
    # Of `guard decide` alone.
    "listen": (list[str], "unix:PATH or HOST:PORT where Envoy asks; repeat.", "--listen", "-l"),
    "server": (
        list[str],
        "[PRINCIPAL@]NAME=URL: a server that a route names; repeat.",
        "--server",
        "-s",
    ),
    "front_secret": (Path, "File with the secret that Envoy shows; for HOST:PORT."),
    "egress": (str, "unix:PATH of an Envoy that takes allowed calls on (default: direct)."),
}
"""Options of settings: type, help and, where they are not the name alone, flags."""


def takes_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some settings; it gets their values by name."""

    def given(command: Callable[..., None]) -> Callable[..., None]:
        options = []
        for name in names:
            kind, text, *flags = SETTINGS[name]
            option = Annotated[kind | None, typer.Option(*flags, help=text)]  # type: ignore[valid-type]  # of the table
            options.append(Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=option))
        own = signature(command, eval_str=True).parameters.values()
        return with_parameters(
            command, [*options, *(one for one in own if one.kind is not Parameter.VAR_KEYWORD)]
        )

    return given


def with_parameters(
    command: Callable[..., None], parameters: Iterable[Parameter]
) -> Callable[..., None]:
    """Return a command that Typer sees with these parameters."""
    every = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]

    @wraps(command)
    def run(**values: Any) -> None:
        command(**values)

    vars(run)["__signature__"] = Signature(every)
    run.__annotations__ = {one.name: one.annotation for one in every}
    return run
