"""``guard init`` against a hand-made truth about the tools of real servers (``init_truth/``)."""

from __future__ import annotations

import fnmatch
import json
import re
import tempfile
from dataclasses import dataclass
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
DAYS: Final = Path(__file__).with_name("days")
CURRENT: Final[Any] = YAML(typ="safe").load(DAYS / "truth.yaml")
"""Further servers: the command that starts each, and patterns of the tools that only read."""
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
    path = DAYS / "tools" if server in CURRENT else FOLDER
    tools: list[dict[str, Any]] = json.loads((path / f"{server}.json").read_text("utf-8"))
    return tools


def truth_of(server: str) -> Mapping[str, Any]:
    """Return how a user starts a server, and the truth about its tools."""
    if server not in CURRENT:
        known: Mapping[str, Any] = YAML(typ="safe").load(FOLDER / f"{server}.yaml")
        return known
    said, others = CURRENT[server], {"role": ["ask", "other", "send", "draft"]}
    tools = {tool["name"]: others for tool in listed(server)}
    reads = {name for one in said["reads"] for name in fnmatch.filter(tools, one)}
    return {**said, "tools": tools | {name: {"role": "retrieve"} for name in reads}}


def truths() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name of each server of ``init_truth``, and the truth about it."""
    for path in sorted(FOLDER.glob("*.yaml")):
        yield path.stem, truth_of(path.stem)


def judged() -> list[Judged]:
    """Return every tool of every server, judged by the policy that is proposed for the server."""
    names = [*(name for name, _ in truths()), *CURRENT]
    return [
        Judged(name, tool, *outcome(said, mapping))
        for name in names
        for tool, said, mapping in _mapped(name, truth_of(name))
    ]


def _mapped(
    name: str, truth: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], ToolMapping | None]]:
    server = ConfiguredServer(name, command=tuple(truth["launch"]), transport="stdio")
    upstream = f"stdio:{name}"
    one = proposed(server, upstream, [listed_tool(tool) for tool in listed(name)])
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
