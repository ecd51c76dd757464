"""Honest flows (``lab/trust/honest``) through the policies that ``guard init`` proposes.

Each family of tools is a server that its user starts or reaches as below, where such a server is
public; the others are servers that nobody knows.  What a model looks through without being asked
(its habit in :mod:`lab.trust.flows`) is left out: it belongs to no server of these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from guard.policy.client_config import ConfiguredServer
from guard.policy.proposal import ListedTool, policy_text
from guard.policy.recognition import profiles_of, proposed
from guard.settings import BUILTIN, builtin_policies
from lab.trust.flows import course_of, family_tools, house, service_of, tellings
from lab.trust.harness import MCP_PATH, OTHER, TOOLS, UPSTREAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guard.policy.proposal import ProposedServer
    from lab.trust.flows import Course, Telling
    from lab.trust.harness import Compose

WORKSPACE: Final = ("uvx", "workspace-mcp")
MICROSOFT: Final = ("npx", "-y", "@softeria/ms-365-mcp-server")
LAUNCHES: Final[Mapping[str, tuple[str, ...]]] = {
    "gmail": WORKSPACE,
    "google-calendar": WORKSPACE,
    "google-drive": WORKSPACE,
    "microsoft-mail": MICROSOFT,
    "microsoft-calendar": MICROSOFT,
    "sharepoint": MICROSOFT,
    "teams": MICROSOFT,
    "slack": ("npx", "-y", "@modelcontextprotocol/server-slack"),
    "github": ("npx", "-y", "@modelcontextprotocol/server-github"),
    "stripe": ("npx", "-y", "@stripe/mcp"),
    "hubspot": ("npx", "-y", "@hubspot/mcp-server"),
    "zendesk": ("uvx", "zendesk-mcp-server"),
    "kubernetes": ("npx", "-y", "kubernetes-mcp-server"),
    "fetch": ("uvx", "mcp-server-fetch"),
    "entities": ("npx", "-y", "@modelcontextprotocol/server-memory"),
}
"""How the server of a family is started, where it is a public one."""
URLS: Final[Mapping[str, str]] = {"gitlab": "https://gitlab.com/api/v4/mcp"}
TOLD: Final[Mapping[str, str]] = {"built-in": "default", "http": "default", "facts": "fact-store"}
"""What users of other servers say they are, beside those whose profile has the family's name."""
_NO_DIGEST: Final = "0" * 32


async def honest_courses(
    compose: Compose,
    redis_url: str,
    *,
    limit: int | None,
    known: bool,
    step: Callable[[], object] = lambda: None,
) -> dict[str, list[Course]]:
    """Play the flows, and return what became of each, by domain.

    Args:
        compose: the composition root.
        redis_url: of a server that nothing else uses.
        limit: tellings at most, drawn evenly; all if None.
        known: whether the user says what servers are that nobody knows (``--known``).
        step: called after each telling.
    """
    chosen = list(tellings())
    if limit is not None and limit < len(chosen):
        chosen = [chosen[number * len(chosen) // limit] for number in range(limit)]
    found: dict[str, list[Course]] = {}
    for one in chosen:
        plain = replace(one, habit=replace(one.habit, curious=False))
        policies = [policy_text("init", house(), _servers(plain, known=known))]
        course = await course_of(compose, redis_url, plain, policies, prompts=True, remember=True)
        found.setdefault(one.domain, []).append(course)
        step()
    return found


def _servers(telling: Telling, *, known: bool) -> list[ProposedServer]:
    """Return the proposed policy of the server behind each of the harness's listeners."""
    behind: dict[str, list[str]] = {TOOLS: [], OTHER: []}
    for service, family in telling.families.items():
        own = service in {"mail", telling.domain} or service_of(telling.domain) == service
        behind[TOOLS if own else OTHER].append(family)
    return [
        _proposed(listener, families, family_tools(telling, families), known=known)
        for listener, families in behind.items()
        if families
    ]


def _proposed(
    listener: str, families: Sequence[str], tools: Mapping[str, Mapping[str, Any]], *, known: bool
) -> ProposedServer:
    profiles: list[str] = []
    for family in families:
        started = LAUNCHES.get(family, ())
        server = ConfiguredServer(family, URLS.get(family, ""), command=started)
        profiles += profiles_of(server)
        profile = TOLD.get(family, family)
        if known and not started and profile in builtin_policies():
            profiles.append(BUILTIN + profile)
    upstream = UPSTREAMS[listener].partition("://")[2]
    listed = [
        ListedTool(name, {key: {"type": "string"} for key in arguments}, {}, _NO_DIGEST)
        for name, arguments in tools.items()
    ]
    where = ConfiguredServer("tools" if listener == TOOLS else "other", f"http://{upstream}")
    return proposed(where, upstream + MCP_PATH, listed, tuple(dict.fromkeys(profiles)))
