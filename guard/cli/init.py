"""``guard init``: a first policy with its tests, from the tools an agent has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from guard.cli.outcome import given_input
from guard.core.errors import GuardError

if TYPE_CHECKING:
    from guard.policy_files.client_config import ConfiguredServer
    from guard.policy_files.proposal import ListedTool

FIRST_PORT: Final = 9001


def init(
    source: Annotated[str, typer.Argument(help="A client's configuration, or a server's URL.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Policy file to write; its tests go beside it.")
    ] = Path("policy.yaml"),
    domain: Annotated[str, typer.Option(help="Your own domain.")] = "example.com",
    start: Annotated[
        bool, typer.Option("--start", help="Start servers that are commands, to list their tools.")
    ] = False,
) -> None:
    """List the tools of an agent's servers and write a commented policy with its tests.

    Nothing is overwritten.  Commands of the configuration are started only with --start.

    Example: guard init ~/.cursor/mcp.json --domain example.com -o policy.yaml
    """
    tests = output.with_name(f"{output.stem}_test.yaml")
    with given_input():
        for path in (output, tests):
            if path.exists():
                raise GuardError(f"`{path}` exists; move it away or name another with --output")
        servers = _servers(source)
        listed, skipped = _listed(servers, start=start)
        _write(listed, output, tests, domain)
    typer.echo(f"wrote {output} and {tests}; read them, then:")
    typer.echo(f"guard policy check {output}; guard policy test {tests}")
    for name in skipped:
        typer.echo(f"skipped `{name}`: it is a command, see --start")
    _tell_next(servers, output)


def _servers(source: str) -> list[ConfiguredServer]:
    from guard.policy_files.client_config import ConfiguredServer, read_client_config

    if urlsplit(source).scheme in {"http", "https"}:
        return [ConfiguredServer("server", source)]
    return read_client_config(Path(source).expanduser().read_bytes())


def _listed(servers: list[ConfiguredServer], *, start: bool) -> tuple[list[ListedTool], list[str]]:
    from guard.adapters.mcp_client.tool_listing import list_tools

    tools: list[ListedTool] = []
    skipped: list[str] = []
    for server in servers:
        if server.transport == "stdio" and not start:
            skipped.append(server.name)
        else:
            tools += asyncio.run(list_tools(server))
    if not tools:
        raise GuardError("no server listed a tool, so there is nothing to propose")
    return tools, skipped


def _write(tools: list[ListedTool], output: Path, tests: Path, domain: str) -> None:
    from guard.policy_files import load_policies
    from guard.policy_files.proposal import guess, policy_text, suite_text, usable

    kept, odd = usable(tools)
    for name in odd:
        typer.echo(f"left out a tool with the name {name[:80]!r}: it stays unmapped", err=True)
    guesses = [guess(tool) for tool in kept]
    output.write_text(policy_text(output.stem, domain, guesses), encoding="utf-8")
    try:
        load_policies([output])
    except GuardError:
        output.unlink()
        raise
    tests.write_text(suite_text(domain, guesses), encoding="utf-8")


def _tell_next(servers: list[ConfiguredServer], output: Path) -> None:
    """Say how to put the guard in front of the servers that have a URL."""
    urls = [one for one in servers if one.url]
    if not urls:
        return
    words = [f"guard run --policy {output}"]
    for port, server in enumerate(urls, FIRST_PORT):
        parts = urlsplit(server.url)
        words.append(f"--reverse 127.0.0.1:{port}={parts.scheme}://{parts.netloc}{parts.path}")
    typer.echo("then: " + " \\\n  ".join(words))
    for port, server in enumerate(urls, FIRST_PORT):
        path = urlsplit(server.url).path
        typer.echo(f"and give clients http://127.0.0.1:{port}{path} for `{server.name}`")
