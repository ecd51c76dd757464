"""Commands on the side of agents: ``guard stdio``, ``hook``, ``prompt`` and ``federate``."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from guard.core.errors import GuardError, InputError
from guard.settings import child_environment, read_secret


def stdio(
    command: Annotated[list[str], typer.Argument(help="The server and its arguments, after --.")],
    policy: Annotated[
        list[Path], typer.Option("--policy", "-p", help="As the running guard has it.")
    ],
    decisions: Annotated[
        Path, typer.Option(envvar="GUARD_DECISIONS", help="Socket of the running guard.")
    ],
    name: Annotated[str, typer.Option(help="What the server is called in audit lines.")] = "",
    secret_env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE: a write credential that only the server gets; repeat."),
    ] = None,
    agent_secret: Annotated[
        Path | None, typer.Option(help="File with the agent's own proxy secret.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for one decision.")] = 10.0,
) -> None:
    """Wrap a stdio MCP server; decisions, state and models are those of the running guard.

    Example: guard stdio -p policy.yaml --decisions /run/guard/decide.sock -- npx some-server
    """
    from guard.pep.stdio.wrapper import Decisions, run_stdio
    from guard.policy import load_policies

    hello = {"policy": load_policies(policy).digest, "name": name or Path(command[0]).name}
    # Hooks that the same client starts report its session.
    hello["client"] = str(os.getppid())
    if agent_secret is not None:
        hello["secret"] = read_secret(agent_secret)
    environment = child_environment(secret_env or [])
    decided = Decisions(decisions, hello, timeout)
    raise typer.Exit(asyncio.run(run_stdio(command, decided, environment)))


def hook(
    client: Annotated[str, typer.Argument(help="claude-code, codex or cursor.")],
    decisions: Annotated[
        Path | None, typer.Option(envvar="GUARD_DECISIONS", help="Socket of the running guard.")
    ] = None,
    process: Annotated[
        str, typer.Option(help="Process id of the client: joins its MCP servers to the session.")
    ] = "",
    agent_secret: Annotated[
        Path | None, typer.Option(help="File with the agent's own proxy secret.")
    ] = None,
) -> None:
    """Judge one hook of a coding agent: payload on standard input, answer on standard output.

    Exit code 2 refuses the call; it is also that of a guard which does not answer.

    Example: guard init --hooks writes this command into the clients' settings.
    """
    from guard.pep.hook.client import main

    given = {"--decisions": decisions, "--process": process, "--agent-secret": agent_secret}
    options = [text for name, value in given.items() if value for text in (name, str(value))]
    raise typer.Exit(main([client, *options]))


SECONDS: Final = 10.0
"""Timeout of the request."""


def prompt(
    text: Annotated[str, typer.Argument(help="The text that the person typed.")],
    credential: Annotated[
        Path, typer.Option(help="File with the secret of a front end (prompt_credentials).")
    ],
    session: Annotated[str, typer.Option(help="Session of the agent's calls.")],
    principal: Annotated[
        str, typer.Option(help="Principal that the agent authenticates as.")
    ] = "anonymous",
    recipient: Annotated[
        list[str] | None, typer.Option(help="A recipient that the person chose; repeat.")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="A host whose pages the agent may read; repeat.")
    ] = None,
    attachment: Annotated[
        list[str] | None, typer.Option(help="A file, message or page that belongs to it; repeat.")
    ] = None,
    admin: Annotated[str, typer.Option(help="URL of the guard's admin port.")] = (
        "http://127.0.0.1:9464"
    ),
) -> None:
    """Report a prompt of a person: its values may be used by the agent in this session.

    Example: guard prompt "Send the report to Ann" --recipient ann@partner.example --session s-1
    --credential front-end.secret
    """
    import httpx

    body: dict[str, object] = {"principal": principal, "session": session, "text": text}
    stated = {"recipients": recipient, "hosts": host, "attachments": attachment}
    body |= {name: values for name, values in stated.items() if values}
    headers = {"Authorization": f"Bearer {read_secret(credential)}"}
    try:
        answer = httpx.post(
            f"{admin.rstrip('/')}/v1/prompts", json=body, headers=headers, timeout=SECONDS
        )
    except httpx.HTTPError as error:
        raise GuardError(f"`{admin}` does not answer ({type(error).__name__})") from error
    if answer.status_code != httpx.codes.ACCEPTED:
        raise GuardError(
            f"the guard refused the prompt ({answer.status_code}): {answer.text[:200]}"
        )


def federate(
    server: Annotated[
        list[str], typer.Argument(help="NAME=URL of a server at the guard's listener; repeat.")
    ],
    listen: Annotated[str, typer.Option(help="HOST:PORT of the endpoint.")] = "127.0.0.1:9000",
) -> None:
    """Serve one MCP endpoint for several servers: lists merged, names prefixed (`mail__send`).

    Resources are `federation:NAME/URI`; subscriptions to them are refused.

    It decides nothing: the URLs are those of the guard's own listeners, which judge each call as
    one to its own server.

    Example: guard federate mail=http://127.0.0.1:9001/mail files=http://127.0.0.1:9001/files
    """
    import uvicorn

    from guard.runtime.federation import ENDPOINT, MARK, application

    servers: dict[str, str] = {}
    for text in server:
        name, equals, url = text.partition("=")
        plain = re.fullmatch(r"[A-Za-z0-9-]{1,32}", name)
        if (
            not equals
            or not plain
            or name in servers
            or not url.startswith(("http://", "https://"))
        ):
            raise InputError(f"`{text}` is not NAME=URL with a name of its own, without `{MARK}`")
        servers[name] = url
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise InputError(f"`{listen}` is not HOST:PORT")
    typer.echo(f"federation ready on http://{host}:{port}{ENDPOINT}", err=True)
    hosts = [listen, f"localhost:{port}"]
    uvicorn.run(application(servers, hosts), host=host, port=int(port), log_level="warning")
