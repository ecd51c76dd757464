"""``guard init`` against a hand-made truth about the tools of real servers (``init_truth/``)."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML

from guard.core.model import Role
from guard.policy import load_policies
from guard.policy.client_config import ConfiguredServer
from guard.policy.proposal import policy_text
from guard.policy.recognition import proposed
from guard.runtime.mcp_client.tool_listing import listed_tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from guard.core.mappings import ToolMapping

FOLDER: Final = Path(__file__).with_name("init_truth")
CURRENT: Final = Path(__file__).with_name("days")
ASK: Final = "ask"
MEMORY: Final = frozenset({Role.RECALL, Role.LIST, Role.SAVE})


@dataclass(frozen=True, slots=True)
class Judged:
    """Outcome of one tool of one server."""

    server: str
    tool: str
    outcome: str
    """``right``, ``stricter`` or ``looser``."""
    said: str
    """Effect of the tool according to the policy."""


@cache
def listed(server: str) -> list[dict[str, Any]]:
    """Return the ``tools/list`` of a server."""
    known = FOLDER / f"{server}.json"
    path = known if known.exists() else CURRENT / f"tools/{server}.json"
    tools: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return tools


def launch(server: str) -> tuple[str, ...]:
    """Return how a user starts a server."""
    known = FOLDER / f"{server}.yaml"
    if known.exists():
        return tuple(YAML(typ="safe").load(known)["launch"])
    return tuple(YAML(typ="safe").load(CURRENT / "launches.yaml")[server])


def truths() -> Iterator[tuple[str, Mapping[str, Any], list[dict[str, Any]]]]:
    """Yield each server's name, the truth about it, and what it lists."""
    for path in sorted(FOLDER.glob("*.yaml")):
        yield path.stem, YAML(typ="safe").load(path), listed(path.stem)


def current_truths() -> Iterator[tuple[str, Mapping[str, Any], list[dict[str, Any]]]]:
    """Yield the truths of all servers: those of ``init_truth``, then those of ``days``."""
    yield from truths()
    reads: Mapping[str, list[str]] = YAML(typ="safe").load(CURRENT / "truth.yaml")
    for name, patterns in reads.items():
        tools = {
            tool["name"]: {"role": "retrieve"}
            if any(fnmatchcase(tool["name"], one) for one in patterns)
            else {"role": ["ask", "other", "send", "draft"]}
            for tool in listed(name)
        }
        yield name, {"launch": launch(name), "tools": tools}, listed(name)


def judged() -> list[Judged]:
    """Return every tool of every server, judged by the policy that is proposed for the server."""
    return [
        Judged(name, tool, *outcome(said, mapping))
        for name, truth, listed in current_truths()
        for tool, said, mapping in _mapped(name, truth, listed)
    ]


def _mapped(
    name: str, truth: Mapping[str, Any], listed: list[dict[str, Any]]
) -> Iterator[tuple[str, Mapping[str, Any], ToolMapping | None]]:
    server = ConfiguredServer(name, command=tuple(truth["launch"]), transport="stdio")
    upstream = f"stdio:{name}"
    one = proposed(server, upstream, [listed_tool(tool) for tool in listed])
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "policy.yaml"
        path.write_text(policy_text(name, "corp.example", [one]), encoding="utf-8")
        policy = load_policies([path])
    for tool, said in truth["tools"].items():
        yield tool, said, policy.mapping(tool, upstream, f"{upstream}/")


def outcome(truth: Mapping[str, Any], mapping: ToolMapping | None) -> tuple[str, str]:
    """Return how a policy's mapping of a tool compares with the truth, and what it says.

    Args:
        truth: of the tool: ``role`` and ``destinations``, as the README beside the truths has it.
        mapping: that claims the tool; None where it is asked about.
    """
    roles = truth["role"] if isinstance(truth["role"], list) else [truth["role"]]
    if mapping is None:
        return "right" if ASK in roles else "stricter", ASK
    known = {name for p in mapping.destinations for name in re.findall(r"\$\.(\w+)", p.text)}
    missing = set(truth.get("destinations", ())) - known
    said = mapping.role.value + (f", without {', '.join(sorted(missing))}" if missing else "")
    if mapping.role.value in roles and not missing:
        return "right", said
    return "looser" if missing or _is_looser(roles, mapping.role) else "stricter", said


def _is_looser(roles: list[str], role: Role) -> bool:
    """Return whether something that the truth judges passes unjudged; see the README beside it."""
    if role is Role.SEND:
        return roles == [ASK]
    if role.value not in roles and {ASK, "other"} <= set(roles):
        return True
    if ASK in roles or Role.SEND.value in roles:
        return True
    if Role.SAVE.value in roles:
        return role is not Role.SAVE
    return bool({Role.RECALL.value, Role.LIST.value} & set(roles)) and role not in MEMORY
