"""``guard init``: a first policy with its tests, from the tools an agent has, and the way in."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
import shutil
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from guard.cli.outcome import given_input, plain
from guard.core.errors import GuardError
from guard.core.policy import Action
from guard.policy import load_policies
from guard.policy.client_config import (
    FILES,
    ConfiguredServer,
    Rewritten,
    hook_command,
    read_client_config,
    rewritten_config,
    with_hooks,
)
from guard.policy.proposal import (
    ProposedServer,
    ask_text,
    hooks_text,
    policy_text,
    server_start,
    suite_text,
    usable,
)
from guard.policy.recognition import proposed
from guard.policy.yaml_loader import merged_yaml
from guard.processes.private_directories import PRIVATE_FILE, write_private
from guard.protocols.mcp.mcp import endpoint_path
from guard.settings import BUILTIN, policy_file, state_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


LISTENER: Final = "127.0.0.1:9001"
"""Address of the proposed guard: one listener, a path for each server."""
BACKUP: Final = ".before-guard-"
"""Between the name of a configuration and the digest of what was written in its place."""
DIGITS: Final = 16
CODING: Final = f"{BUILTIN}coding-agent"
CLIENTS: Final = (
    ".mcp.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    "~/.claude.json",
    "~/.config/Claude/claude_desktop_config.json",
    "~/Library/Application Support/Claude/claude_desktop_config.json",
    "~/.cursor/mcp.json",
    "~/.config/Code/User/mcp.json",
    "~/Library/Application Support/Code/User/mcp.json",
    "~/.codex/config.toml",
    "~/.gemini/settings.json",
)
"""Files in which clients keep their configurations, in the order in which they are looked for."""
ASKING: Final = (
    ".mcp.json",
    ".claude.json",
    ".cursor/mcp.json",
    ".vscode/mcp.json",
    "Code/User/mcp.json",
    ".codex/config.toml",
)
"""Ends of the configurations of clients that show their user a form (MCP elicitation)."""


def init(
    source: Annotated[
        str | None,
        typer.Argument(help="A client's configuration (default: the first found), or a URL."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Policy file to write; its tests go beside it.")
    ] = Path("policy.yaml"),
    domain: Annotated[str, typer.Option(help="Your own domain.")] = "example.com",
    start: Annotated[
        bool, typer.Option("--start", help="Start servers that are commands, to list their tools.")
    ] = False,
    known: Annotated[
        list[str] | None,
        typer.Option("--known", help="NAME=PROFILE: you know what this server is; repeat."),
    ] = None,
    write_client: Annotated[
        bool,
        typer.Option("--write-client", help="Let the client reach its servers through the guard."),
    ] = False,
    hooks: Annotated[
        bool,
        typer.Option("--hooks", help="Let Claude Code, Codex and Cursor ask the guard by hooks."),
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Put a configuration back as it was.")
    ] = False,
) -> None:
    """List the tools of an agent's servers and write a policy with its tests.

    A server that is known by the command or URL you gave gets its shipped profile, and its tools'
    definitions are pinned; everything else is asked about until you have said what it does.  Run
    again, it adds servers that are new to the policy, and to its tests.  No file is overwritten
    but the client's, with --write-client, which keeps a copy.

    With --hooks alone, the coding agents of this user ask a guard with builtin:coding-agent.

    Example: guard init ~/.cursor/mcp.json --domain example.com --start --write-client
    """
    with given_input():
        if hooks and not undo:
            _install_hooks()
            if source is None:
                words = ["guard", "run", "--policy", CODING, "--decisions", str(_socket())]
                typer.echo("run the guard: " + shlex.join(words))
                return
        origin = source or _first_client()
        if undo:
            _put_back(Path(origin).expanduser())
            return
        references = _said(known or [])
        _propose(origin, output, domain, references, start=start, rewrite=write_client, hooks=hooks)


def _first_client() -> str:
    # Without a home directory there is nothing to look for in it.
    with suppress(RuntimeError):
        for name in CLIENTS:
            if Path(name).expanduser().is_file():
                typer.echo(f"reading {name}", err=True)
                return name
    raise GuardError("no client's configuration was found; name one, or the URL of a server")


def _said(known: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the profiles that the user named, by server."""
    references: dict[str, tuple[str, ...]] = {}
    for item in known:
        name, equals, profile = item.partition("=")
        if not equals:
            raise GuardError(f"`{item}` is not NAME=PROFILE, for example mail=gmail")
        reference = BUILTIN + profile.removeprefix(BUILTIN)
        policy_file(Path(reference))
        references[name] = (*references.get(name, ()), reference)
    return references


def _propose(
    origin: str,
    output: Path,
    domain: str,
    references: Mapping[str, tuple[str, ...]],
    *,
    start: bool,
    rewrite: bool,
    hooks: bool,
) -> None:
    tests = output.with_name(f"{output.stem}_test.yaml")
    before = (output, tests) if output.exists() else ()
    servers, guarded = _servers(origin)
    if guarded and not before:
        raise GuardError(f"`{guarded[0]}` goes through the guard already; see --undo")
    if unknown := references.keys() - {server.name for server in servers}:
        raise GuardError(f"there is no server `{min(unknown)}` that `--known` could be about")
    rows = [(name, "as before", "", "", "no") for name in guarded]
    if servers:
        proposals, reached, failures = _proposals(servers, references, start=start)
        if before:
            _add(proposals, output, tests)
        else:
            _write(proposals, output, tests, domain, asks=origin.endswith(ASKING), hooks=hooks)
        typer.echo(f"wrote {output} and {tests}")
        for one in proposals:
            _tell(one)
        _tell_next(reached, output, is_more=bool(guarded), hooks=hooks)
        if rewrite and not origin.startswith(("http://", "https://")):
            _rewrite(Path(origin).expanduser(), reached, output)
        rows += [_row(one) for one in proposals]
        rows += [(name, "nothing", "", "", why) for name, why in failures.items()]
    for row in (("server", "guarded by", "mapped", "asked", "bypasses"), *rows):
        typer.echo(plain("{:<24} {:<40} {:>6} {:>6}  {}".format(*row)))


def _row(one: ProposedServer) -> tuple[str, str, str, str, str]:
    """Return a server's row of the table at the end."""
    profiles = ", ".join(one.profiles) or "a question about each tool"
    asked = {guess.tool for guess in one.guesses} | one.dropped.keys()
    return one.name, profiles, str(one.mapped), str(len(asked)), "no"


def _servers(source: str) -> tuple[list[ConfiguredServer], list[str]]:
    """Return the servers, each with a name that a policy can have, and those behind a guard."""
    if urlsplit(source).scheme in {"http", "https"}:
        return [ConfiguredServer("server", source)], []
    found: dict[str, ConfiguredServer] = {}
    guarded: list[str] = []
    for server in read_client_config(Path(source).expanduser().read_bytes()):
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", server.name).strip("-._")[:40] or "server"
        if "--decisions" in server.command or server.url.startswith(f"http://{LISTENER}/"):
            guarded.append(slug)
            continue
        while slug in found or slug in guarded:
            slug += "-2"
        found[slug] = replace(server, name=slug)
    return list(found.values()), guarded


def _proposals(
    servers: Sequence[ConfiguredServer], references: Mapping[str, tuple[str, ...]], *, start: bool
) -> tuple[list[ProposedServer], list[ConfiguredServer], dict[str, str]]:
    """Return proposals, servers with the transports that they speak, and reasons for the others."""
    from guard.runtime.mcp_client.tool_listing import list_tools

    proposals: list[ProposedServer] = []
    reached: list[ConfiguredServer] = []
    failures: dict[str, str] = {}
    for server in servers:
        if server.transport == "stdio" and not start:
            failures[server.name] = "it is a command, see --start"
            continue
        try:
            tools, spoken = asyncio.run(list_tools(server))
        except GuardError as error:
            failures[server.name] = str(error)
            continue
        kept, odd = usable(tools)
        for name in odd:
            typer.echo(f"left out a tool with the name {name[:80]!r}: it stays unmapped", err=True)
        reached.append(spoken)
        proposals.append(proposed(server, upstream_of(spoken), kept, references.get(server.name)))
    for name, why in failures.items():
        typer.echo(plain(f"skipped `{name}`: {why}"), err=True)
    if not proposals:
        raise GuardError("no server listed a tool, so there is nothing to propose")
    return proposals, reached, failures


def upstream_of(server: ConfiguredServer) -> str:
    """Return how the guard will know a server: as its definitions are pinned."""
    if server.transport == "stdio":
        return f"stdio:{server.name}"
    parts = urlsplit(server.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = f"{parts.hostname}:{port}".lower()
    # An older server posts elsewhere than where its stream is.
    return host if server.transport == "sse" else host + endpoint_path(parts.path or "/")


def _write(
    proposals: Sequence[ProposedServer],
    output: Path,
    tests: Path,
    domain: str,
    *,
    asks: bool,
    hooks: bool,
) -> None:
    text = policy_text(output.stem, domain, proposals) + (hooks_text() if hooks else "")
    policy = load_policies([output], {str(output): text})
    asking = sorted({rule.id for rule in policy.rules if rule.effect is Action.ASK})
    text += ask_text(asking if asks or hooks else ())
    load_policies([output], {str(output): text})
    output.write_text(text, encoding="utf-8")
    tests.write_text(suite_text(proposals), encoding="utf-8")


def _add(proposals: Sequence[ProposedServer], output: Path, tests: Path) -> None:
    """Add servers that are new to a policy and its tests; everything else stays.

    Raises:
        GuardError: a file cannot be read, the policy would not load, or it knows another server by
            that name or address; nothing was changed.
    """
    before = output.read_text("utf-8")
    known = {server.upstream for server in load_policies([output]).servers}
    for one in proposals:
        if one.upstream in known and server_start(one) not in before:
            raise GuardError(
                f"`{one.name}` is another server in {output}: rename it in the client's file, "
                "or start with an empty policy by --output"
            )
    proposals = [one for one in proposals if one.upstream not in known]
    suite = tests.read_text("utf-8") if tests.exists() else "version: 1\ntests: []\n"
    suite = merged_yaml(suite, suite_text(proposals), ("tests",))
    text = merged_yaml(before, policy_text("", "", proposals), ("servers", "rules", "memory"))
    load_policies([output], {str(output): text})
    output.write_text(text, encoding="utf-8")
    tests.write_text(suite, encoding="utf-8")


def _tell(one: ProposedServer) -> None:
    profiles = ", ".join(one.profiles) or (
        f"no profile: not a package, image or URL that is known; see --known {one.name}=PROFILE"
    )
    asked = ", ".join(guess.tool for guess in one.guesses if guess.tool not in one.dropped)
    typer.echo(plain(f"`{one.name}` ({one.started}): {profiles}; {one.mapped} tools mapped"))
    if asked:
        typer.echo(plain(f"  asked about until you say in the policy what they do: {asked}"))
    reasons: dict[str, list[str]] = {}
    for tool, reason in one.dropped.items():
        reasons.setdefault(reason, []).append(tool)
    for reason, tools in reasons.items():
        typer.echo(plain(f"  asked about: {', '.join(tools)}: {reason}"))


def _tell_next(
    servers: Sequence[ConfiguredServer], output: Path, *, is_more: bool, hooks: bool
) -> None:
    """Print the command that runs the guard, and how clients reach each server through it."""
    words = [] if is_more else ["guard", "run", "--policy", str(output)]
    for server in servers:
        if server.url:
            words += ["--reverse", f"{LISTENER}/{server.name}={_bare(server.url)}"]
    if hooks or any(server.transport == "stdio" for server in servers):
        words += ["--decisions", str(_socket())]
    title = "add to the command of the guard: " if is_more else "run the guard: "
    typer.echo(title + shlex.join(words))
    for server in servers:
        if server.url:
            typer.echo(f"clients reach `{server.name}` at http://{LISTENER}/{server.name}")
        else:
            wrapper = shlex.join(_wrapper(server, output)[: -len(server.command)])
            typer.echo(f"clients start `{server.name}` as: {wrapper} COMMAND AS BEFORE")


def _bare(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _socket() -> Path:
    return state_directory() / "decide.sock"


def _wrapper(server: ConfiguredServer, policy: Path) -> list[str]:
    """Return the command that starts a server behind the guard; clients have no PATH of ours."""
    guard = shutil.which("guard")
    own = [guard] if guard else [sys.executable, "-m", "guard"]
    words = [*own, "stdio", "--policy", str(policy.absolute()), "--decisions", str(_socket())]
    return [*words, "--name", server.name, "--", *server.command]


def _rewrite(path: Path, servers: Sequence[ConfiguredServer], policy: Path) -> None:
    """Let a client start and reach its servers through the guard; keep what was there."""
    before = path.read_bytes()
    _replaced(path, before, rewritten_config(before, [_instead(one, policy) for one in servers]))


def _replaced(path: Path, before: bytes, after: bytes) -> None:
    """Replace a client's file, and keep a copy of it."""
    kept = path.with_name(f"{path.name}{BACKUP}{_digest(after)}")
    mode = path.stat().st_mode & 0o777 if path.exists() else PRIVATE_FILE
    write_private(kept, before, mode=mode)
    write_private(path, after, mode=mode)
    typer.echo(f"rewrote {path}; as it was: {kept}; `guard init {path} --undo` puts it back")


def _install_hooks() -> None:
    """Write the guard's hooks into the settings of each coding agent that this user has.

    Raises:
        GuardError: no coding agent was found, or its settings cannot be read.
    """
    from guard.pep.hook import client

    found = [name for name, one in FILES.items() if Path(one.path).expanduser().parent.is_dir()]
    if not found:
        folders = ", ".join(str(Path(one.path).parent) for one in FILES.values())
        raise GuardError(f"no coding agent was found: there is none of {folders}")
    for name in found:
        path = Path(FILES[name].path).expanduser()
        # Neither `site` nor a console script: both take longer than the hook.
        words = [sys.executable, "-I", "-S", str(client.__file__), name, "--decisions"]
        command = hook_command([shlex.quote(word) for word in (*words, str(_socket()))])
        before = path.read_bytes() if path.exists() else b""
        after = with_hooks(name, before, command)
        if after != before:
            _replaced(path, before, after)
    typer.echo("Codex asks you to trust new hooks: open `/hooks` in it once")


def _instead(server: ConfiguredServer, policy: Path) -> Rewritten:
    if server.url:
        return Rewritten(server.place, url=f"http://{LISTENER}/{server.name}")
    return Rewritten(server.place, command=tuple(_wrapper(server, policy)))


def _put_back(path: Path) -> None:
    """Put a configuration back as it was before this command rewrote it.

    Raises:
        GuardError: it was changed since, or never rewritten.
    """
    kept = path.with_name(f"{path.name}{BACKUP}{_digest(path.read_bytes())}")
    if not kept.is_file():
        others = ", ".join(str(p) for p in sorted(path.parent.glob(f"{path.name}{BACKUP}*")))
        hint = f"it was changed since; as it was before: {others}" if others else "nothing is kept"
        raise GuardError(f"`{path}` is not what this command has written: {hint}")
    kept.replace(path)
    if not path.stat().st_size:
        path.unlink()
    typer.echo(f"{path} is as it was")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]
