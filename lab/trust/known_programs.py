"""Programs that lie in any folder and are called like a known server, or like what starts one.

What a hostile server needs is a file of the right name in the user's configuration: a profile that
follows the name would map its tools.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar, Final

from guard.policy import load_policies, recognition
from guard.policy.client_config import ConfiguredServer
from guard.policy.proposal import ListedTool, policy_text
from guard.policy.recognition import Launch
from lab.trust.attacks import AttackClass, Attempt, Switch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from lab.trust.attacks import Patch, Play
    from lab.trust.harness import World

SERVERS: Final = (
    ("npm", "@modelcontextprotocol/server-filesystem", "read_file"),
    ("npm", "@modelcontextprotocol/server-memory", "search_nodes"),
    ("npm", "@modelcontextprotocol/server-slack", "slack_list_channels"),
    ("npm", "@modelcontextprotocol/server-github", "list_issues"),
    ("npm", "@modelcontextprotocol/server-postgres", "query"),
    ("pypi", "workspace-mcp", "search_gmail_messages"),
    ("pypi", "chroma-mcp", "chroma_query_documents"),
    ("images", "mcp/filesystem", "read_file"),
)
"""Packages with a profile, and a tool that it lets a call of pass."""
FOLDERS: Final = ("/tmp/x/", "./", "/usr/local/bin/", "C:\\Temp\\", "")  # noqa: S108
RUNNERS: Final = {
    "npm": (("npx", "-y"), ("bunx",), ("pnpm", "dlx"), ("npm", "exec")),
    "pypi": (("uvx",), ("uv", "tool", "run"), ("pipx", "run")),
    "images": (("docker", "run", "-i"), ("podman", "run")),
}
PROGRAMS: Final = (
    "{folder}{name}",
    "node {folder}{name}",
    "node {folder}node_modules/{package}/i.js",
)
SCRIPTS: Final = (
    "python {folder}{name}",
    "uv run --directory {folder} {name}",
    "sh {folder}{name}",
)
_WHERE: Final = "tools.internal:9000/mcp"
"""The server behind the harness's first listener."""
_DIGEST: Final = "0" * 32


class KnownPrograms(AttackClass):
    """A server is its package, by a runner of packages; a path is anybody's."""

    id: ClassVar[str] = "known_programs"
    switches: ClassVar[tuple[Switch, ...]] = (
        Switch("the path of a program is no package", lambda p: _by_basename(p), among="program"),
        Switch("a runner is one of the path of commands", lambda p: _any_runner(p), among="runner"),
    )

    def attempts(self, rng: Random) -> Iterator[Attempt]:
        """Yield one for each package, folder and command line, in an order of the seed's."""
        found = [*_programs(), *_runners()]
        rng.shuffle(found)
        for title, tool, command in found:
            yield Attempt(f"{title}: {' '.join(command)}", _play(tool, command), policy=_policy(()))


def _programs() -> Iterator[tuple[str, str, Sequence[str]]]:
    for (_, package, tool), folder in itertools.product(SERVERS, FOLDERS):
        for form in (*PROGRAMS, *SCRIPTS):
            name = package.rpartition("/")[2]
            yield "program", tool, form.format(folder=folder, name=name, package=package).split()


def _runners() -> Iterator[tuple[str, str, Sequence[str]]]:
    for (kind, package, tool), folder in itertools.product(SERVERS, FOLDERS):
        for runner in RUNNERS[kind] if folder else ():
            yield "runner", tool, (folder + runner[0], *runner[1:], package)


def _policy(command: Sequence[str], *tools: ListedTool) -> str:
    """Return the policy that is proposed for a server that a command starts."""
    server = ConfiguredServer("tools", command=tuple(command) or ("./unknown",))
    return policy_text("mine", "corp.example", [recognition.proposed(server, _WHERE, tools)])


def _play(tool: str, command: Sequence[str]) -> Play:
    async def play(world: World) -> bool:
        # Written when it is played, so that a rule that is switched off by then is off in it.
        text = _policy(command, ListedTool(tool, {}, {}, _DIGEST))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            world.parts.guard.swap_policy(load_policies([Path(file.name)]))
        return (await world.agent().call(tool, {"note": "the quarter's figures"})).forwarded

    return play


def _by_basename(patch: Patch) -> None:
    """Take every word of a command line that ends in a package's name for the package."""

    def launched(command: Sequence[str], environment: Mapping[str, str]) -> Launch | None:
        del environment
        ends = [PurePath(word.replace("\\", "/")).name for word in command]
        for kind, package, _ in SERVERS:
            if package.rpartition("/")[2] in ends:
                return Launch(kind, package)
        return None

    patch.set(recognition, "launched", launched)


def _any_runner(patch: Patch) -> None:
    patch.set(recognition, "_program", lambda word: PurePath(word.replace("\\", "/")).name)
