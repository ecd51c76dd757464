"""Audit events other than decisions, in sentences: policies, trials, incidents, failed parts.

Pure: no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

Detail = Mapping[str, Any]


def happened(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what some audit lines say, the newest first, like ones counted.

    Args:
        events: as :meth:`guard.console.decisions.DecisionIndex.events` returns them.
    """
    found = Counter(filter(None, map(_sentence, events)))
    return [text if count == 1 else f"{text} ({count} times)" for text, count in found.items()]


def _sentence(event: Mapping[str, Any]) -> str:
    """Return one line in words, empty for what is no news."""
    tell = _TOLD.get(event["event"])
    return "" if tell is None else tell(event["detail"])


def _reload(detail: Detail) -> str:
    if detail.get("outcome") == "swapped":
        return f"policy {detail.get('policy_name', '')} was put in force"
    return "policy files with a problem; the policy before them stays"


def _change(detail: Detail) -> str:
    share = f"on trial for {100 * float(detail.get('share', 0)):g} % of the principals"
    done = {"committed": "committed", "trial": share, "step": share, "stop": "taken off trial"}
    act = done.get(str(detail.get("act")))
    return f"policy {act} by {detail.get('by', '')}" if act else ""


def _trial(detail: Detail) -> str:
    act, why = str(detail.get("act", "")), detail.get("why", "")
    if act not in {"stepped_back", "lost", "refused", "done"}:
        return ""
    return f"trial of a policy {act.replace('_', ' ')}" + (f": {why}" if why else "")


def _incident(detail: Detail) -> str:
    if "failed" in detail:
        return ""
    return f"incident {detail.get('incident', '')}: {detail.get('act')} by {detail.get('by')}"


_TOLD: Final[dict[str, Callable[[Detail], str]]] = {
    "guard.policy_reload": _reload,
    "guard.policy_change": _change,
    "guard.policy_trial": _trial,
    "guard.incident": _incident,
    "guard.tool_definition_approved": lambda one: (
        f"new definition of {one.get('tool', '')} accepted by {one.get('by', '')}"
    ),
    "guard.worker_lost": lambda _: "a worker ended and was started again",
    "guard.redis_lost": lambda _: "the embedded Redis ended and was started again",
    "guard.console_lost": lambda _: "the console ended and was started again",
    "guard.labels_incomplete": lambda _: (
        "the store has lost labels: unknown destinations are asked about"
    ),
}
