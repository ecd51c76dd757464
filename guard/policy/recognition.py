"""Known servers, recognised by what their user starts or connects to.

Reads shipped files and the path of commands, nothing else.

INVARIANT (no profile from a server's words): nothing that a server says of itself leads to a
profile.  The user's own command line or URL does; names and schemas of tools can only take a tool
out of it again.  A server is recognised by a package's identity alone: a runner of packages or
images and the exact name that it gets, or a URL.  The path of a program or script says nothing.  A
command that could mean another program than it seems to (an option nobody knows here, a variable
that changes where packages come from) is not recognised.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from shutil import which
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.core.model import READING, Json, Role
from guard.policy.inheritance import load_file
from guard.policy.proposal import (
    RECEIVERS,
    Guess,
    ListedTool,
    ProposedServer,
    argument_kind,
    guess,
    is_addressed,
    suggested_action,
)
from guard.settings import BUILTIN, builtin_policies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guard.core.mappings import PathQuery
    from guard.policy.client_config import ConfiguredServer
    from guard.policy.schema import PolicyDocument, RecognisedEntry, ToolEntry

_ALTERS: Final = re.compile(
    r"(?i)path|(npm_config|uv|pip|node|python|ld|dyld|docker|bash|env)(_.*)?|python.+"
)
"""Variables that can change which program a command starts."""
_HARMLESS: Final = frozenset({"NODE_ENV", "PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONUTF8"})
_QUIET: Final = frozenset({"-y", "--yes", "-q", "--quiet", "--bun", "--"})
_UV_VALUES: Final = frozenset({"--with", "--python", "-p"})
_BRIDGE: Final = "mcp-remote"
"""npm's package that lets clients of standard input and output reach the URL behind its name."""
_BOX_FLAGS: Final = frozenset(
    {"-i", "-t", "-it", "-ti", "--rm", "--init", "--interactive", "--tty"}
)
_BOX_VALUES: Final = frozenset(
    {
        "-e",
        "--env",
        "--env-file",
        "-v",
        "--volume",
        "--mount",
        "--name",
        "-p",
        "--publish",
        "--network",
        "--user",
        "-u",
        "-w",
        "--workdir",
        "--pull",
    }
)
_NPM_NAME: Final = re.compile(r"((?:@[a-z0-9._~-]+/)?[a-z0-9._~-]+)(?:@[A-Za-z0-9.^~_+-]+)?")
_PYPI_NAME: Final = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[a-z0-9,_-]*\])?(?:(?:==|@)[A-Za-z0-9.+!_-]+)?"
)
_IMAGE: Final = re.compile(
    r"([a-z0-9._/-]+(?::\d+/[a-z0-9._/-]+)?)(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?"
)
_IDS: Final = re.compile(r"(^|_)ids?$|[a-z]I[Dd]s?$|(?i:callback|webhook)")
"""Names of arguments that hold an id, or that call back."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Program that a command line starts: a name of one kind."""

    kind: str
    """``npm``, ``pypi``, ``images`` or ``urls``."""
    name: str


def launched(command: Sequence[str], environment: Mapping[str, str]) -> Launch | None:
    """Return what a command starts, None where that cannot be told."""
    if any(_ALTERS.fullmatch(name) for name in environment if name not in _HARMLESS):
        return None
    words = _unwrapped(list(command))
    if not words:
        return None
    words[0] = _program(words[0])
    for runner, read in _RUNNERS:
        if tuple(words[: len(runner)]) == runner:
            return read(words[len(runner) :])
    return None


def _program(word: str) -> str:
    """Return the name of a program as the path of commands has it, else the word as it is.

    A file in any other folder may be called like a runner.
    """
    name = PurePath(word.replace("\\", "/")).name
    is_installed = word == name or which(name) == word
    return name.removesuffix(".cmd") if is_installed else word


def _npm(words: list[str]) -> Launch | None:
    """Return the package that ``npx`` starts, or the URL that a bridge leads to."""
    word = _first(words, _QUIET, ())
    found = _named("npm", _NPM_NAME, word)
    if found is None or found.name != _BRIDGE:
        return found
    url = next(iter(words[words.index(word) + 1 :]), "")
    return Launch("urls", url) if urlsplit(url).hostname else None


def _image(words: list[str]) -> Launch | None:
    """Return the image that ``docker run`` starts."""
    image = _first(words, _BOX_FLAGS, _BOX_VALUES)
    return _named("images", _IMAGE, image.removeprefix("docker.io/"))


def _package(words: list[str]) -> Launch | None:
    """Return the package that ``uvx`` installs: the one behind ``--from``, else the tool's."""
    if words[:1] == ["--from"] and len(words) > 1:
        return _named("pypi", _PYPI_NAME, words[1])
    return _named("pypi", _PYPI_NAME, _first(words, _QUIET, _UV_VALUES))


_RUNNERS: Final = (
    (("npx",), _npm),
    (("bunx",), _npm),
    (("pnpx",), _npm),
    (("pnpm", "dlx"), _npm),
    (("yarn", "dlx"), _npm),
    (("npm", "exec"), _npm),
    (("uvx",), _package),
    (("uv", "tool", "run"), _package),
    (("pipx", "run"), _package),
    (("docker", "run"), _image),
    (("podman", "run"), _image),
)
"""Commands that start packages and images, and the reader of their arguments."""


def _unwrapped(words: list[str]) -> list[str]:
    """Return a command without the shell, or ``env``, around it."""
    if [word.lower() for word in words[:2]] == ["cmd", "/c"]:
        return words[2:]
    if words and _program(words[0]) in {"sh", "bash", "zsh"}:
        text = words[2] if len(words) == len(("sh", "-c", "text")) and words[1] == "-c" else ""
        return [] if re.search(r"[;&|<>$`(){}\n*?!\\]", text) else shlex.split(text)
    return words


def _first(words: Sequence[str], flags: Iterable[str], values: Iterable[str]) -> str:
    """Return the first word that is not an option; empty behind an unknown option."""
    pending = iter(words)
    for word in pending:
        if word in values:
            next(pending, None)
        elif word.startswith("-") and word not in flags and word.partition("=")[0] not in values:
            return ""
        elif not word.startswith("-"):
            return word
    return ""


def _named(kind: str, form: re.Pattern[str], word: str) -> Launch | None:
    found = form.fullmatch(word)
    if found is None:
        return None
    # PEP 503 compares names of packages so.
    return Launch(kind, re.sub(r"[-_.]+", "-", found[1]).lower() if kind == "pypi" else found[1])


def named(server: ConfiguredServer) -> str:
    """Return what a server is, in a few words and without what may be secret in its arguments."""
    start = launched(server.command, server.environment)
    if url := server.url or (start.name if start is not None and start.kind == "urls" else ""):
        parts = urlsplit(url)
        return (
            f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
        )
    program = PurePath(server.command[0].replace("\\", "/")).name
    return program if start is None or start.name == program else f"{program} {start.name}"


def profiles_of(server: ConfiguredServer) -> tuple[str, ...]:
    """Return the shipped policies about a server, as ``builtin:NAME@REVISION``."""
    start = launched(server.command, server.environment) if server.command else None
    return tuple(
        f"{BUILTIN}{name}@{content.revision}"
        for name, content in shipped_profiles().items()
        if content.recognised_by is not None and _is(content.recognised_by, start, server.url)
    )


def _is(known: RecognisedEntry, start: Launch | None, url: str) -> bool:
    if start is None or start.kind == "urls":
        return any(_reaches(start.name if start else url, one) for one in known.urls)
    names: tuple[str, ...] = getattr(known, start.kind)
    return start.name in names


def _reaches(url: str, known: str) -> bool:
    mine, its = urlsplit(url), urlsplit(known)
    if (mine.scheme, mine.netloc.lower()) != (its.scheme, its.netloc):
        return False
    path = its.path.rstrip("/")
    return not path or mine.path == path or mine.path.startswith(path + "/")


@cache
def shipped_profiles() -> dict[str, PolicyDocument]:
    """Return the shipped policies by name."""
    return {name: load_file(Path(BUILTIN + name)).content for name in builtin_policies()}


def _profile(reference: str) -> PolicyDocument:
    return shipped_profiles()[reference.removeprefix(BUILTIN).partition("@")[0]]


def doubt(entry: ToolEntry, tool: ListedTool, known: frozenset[str] = frozenset()) -> str:
    """Return why a listed tool is not the one that a profile means; empty where it is.

    Its schema has a place for what the profile judges, and no other that looks like a receiver's;
    its annotations do not say that it changes what the profile takes for reading.

    Args:
        entry: the profile's mapping.
        tool: as it is listed.
        known: further arguments that the profile accepts.
    """
    names = set(tool.properties)
    heads = _heads((*entry.destinations, *entry.body, *entry.ignore, *entry.guarded)) | known
    heads |= _heads(one.path for one in entry.inert) | _heads([entry.reply] if entry.reply else [])
    judged = _heads(entry.destinations)
    if judged and not judged & names:
        return f"it has none of the arguments {_listed(judged)}"
    if entry.role in READING and tool.annotations.get("readOnlyHint") is False:
        return "the server says that it does not only read"
    further = sorted(_receiving(entry.role, tool) - heads)
    return f"the profile does not know {_listed(further)}, which may name who receives" * bool(
        further
    )


def _receiving(role: Role, tool: ListedTool) -> set[str]:
    """Return the arguments of a tool that can name who receives."""
    schemas = tool.properties.items()
    if role is Role.SEND:
        return {name for name, schema in schemas if argument_kind(name, schema) in RECEIVERS}
    return {name for name, schema in schemas if is_addressed(name, schema)}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def qualifies(name: str, schema: Json = None) -> bool:
    """Return whether an argument may be accepted: not an id, and not a switch."""
    switch = isinstance(schema, dict) and schema.get("type") == "boolean"
    return not (switch or _IDS.search(name) or suggested_action(name) is not None)


def _only_reads(tool: ListedTool, known: frozenset[str]) -> str:
    """Return why the annotations of a tool do not say that it only reads; empty if they do."""
    if tool.annotations.get("readOnlyHint") is not True:
        return "no mapping; the server does not say that it only reads"
    if tool.annotations.get("destructiveHint") is True:
        return "its annotations contradict each other"
    action = suggested_action(tool.name)
    if action is not None:
        return f"it looks like {action}"
    further = _receiving(Role.RETRIEVE, tool) - known
    return f"{_listed(further)} may name who receives" * bool(further)


def _heads(paths: Iterable[PathQuery]) -> set[str]:
    """Return the arguments that JSONPaths begin in; one path may join several (``$.a / $.b``)."""
    heads = re.compile(r"\$(?:\.|\[')([^.'\[\]\s]+)")
    return {name for path in paths for name in heads.findall(path.text)}


def proposed(
    server: ConfiguredServer,
    upstream: str,
    tools: Sequence[ListedTool],
    profiles: Sequence[str] | None = None,
) -> ProposedServer:
    """Return what a policy is to say of a server.

    Args:
        server: as its user configured it.
        upstream: as the guard will know it.
        tools: as it lists them.
        profiles: what its user says it is; else what it is recognised as.
    """
    found = tuple(profiles_of(server) if profiles is None else profiles)
    contents = [_profile(one) for one in found]
    reviewed = [one.recognised_by for one in contents if one.recognised_by is not None]
    account = next((one.account for one in reviewed if one.account is not None), None)
    own = server.environment.get(account.variable, "").strip() if account is not None else ""
    entries = [entry for content in contents for _, entry in content.mappings()]
    accepts = {name for one in reviewed for name in one.accepts}
    annotated = any(one.read_only for one in reviewed)
    pinned: list[ListedTool] = []
    guesses: list[Guess] = []
    reads: list[str] = []
    accounts: list[str] = []
    dropped: dict[str, str] = {}
    for tool in tools:
        entry = next((e for e in entries if any(p.matches(tool.name) for p in e.match)), None)
        accepted = {n for n in accepts & tool.properties.keys() if qualifies(n, tool.properties[n])}
        asked = account if account and account.argument in tool.properties else None
        if asked is not None and own:
            accepted.add(asked.argument)
        problem = _problem(entry, tool, frozenset(accepted), annotated=annotated)
        if asked is not None and not own:
            problem = problem or f"name the account in `{asked.variable}` of the configuration"
        if entry is None or not problem:
            pinned.append(tool)
        if not problem:
            accounts += [tool.name] if asked is not None else []
            reads += [tool.name] if entry is None else []
        elif found:
            # Its profile leaves it open on purpose, or it is another tool of that name.
            dropped[tool.name] = problem
            action = suggested_action(tool.name, tool.annotations)
            guesses.append(Guess(tool.name, None, action=action))
        else:
            guesses.append(guess(tool))
    return ProposedServer(
        server.name,
        upstream,
        named(server),
        found,
        tuple(pinned),
        tuple(guesses),
        tuple(reads),
        dropped,
        (account.argument, own, tuple(accounts)) if account and own else None,
    )


def _problem(
    entry: ToolEntry | None, tool: ListedTool, known: frozenset[str], *, annotated: bool
) -> str:
    if entry is not None:
        return doubt(entry, tool, known)
    return _only_reads(tool, known) if annotated else "no mapping"
