"""Warnings about actions: changes that no rule sees, and rules that can never see a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import PolicyProblem
from guard.core.labels import Rung
from guard.core.model import Role
from guard.policy.memory_schema import declared_reads
from guard.policy.rules.provenance import ProvenanceRule
from guard.policy.suggested_action import GRAVE, suggested_action

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.policy.schema import PolicyFile

_READS: Final = frozenset({Role.RECALL, Role.LIST, Role.RETRIEVE})
_CHANGES: Final = frozenset({Role.SEND, Role.OTHER, Role.SAVE})
_RECORDED: Final = frozenset({Rung.REPLY, Rung.REMEMBERED, Rung.CLAIMED, Rung.TAINTED})
"""Rungs of values that some result or memory has told."""


def unseen_actions(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield tools whose name says that they change something, without an action: warnings.

    A rule of type ``action`` concerns declared actions only.
    """
    if not any(rule.reads_actions for file in files for rule in file.rules):
        return
    for file in files:
        for place, entry in file.content.mappings() if not file.inherited else ():
            if entry.action is not None or entry.role not in _CHANGES:
                continue
            for pattern in entry.match:
                action = suggested_action(pattern.text)
                if action in GRAVE:
                    message = (
                        f"`{pattern.text}` reads like a tool that changes something, and no rule "
                        f"of type `action` sees it: write `action: {action}`, or the one that fits"
                    )
                    yield PolicyProblem(
                        file.source.path, file.source.line((*place, "match")), message
                    )


def unrecorded(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield what needs values of results where no mapping has results: warnings.

    Values are recorded from the results of tools that read, and from memory.
    """
    records = any(
        entry.role in _READS for file in files for _, entry in file.content.mappings()
    ) or any(
        True for file in files for _ in declared_reads(file.content.memory, file.content.stores)
    )
    if records or all(file.is_base for file in files):
        return
    fix = "map the tools that read (`role: retrieve`, `recall` or `list`)"
    asks = any(rule.reads_actions for file in files for rule in file.rules)
    for file in files:
        if file.inherited:
            continue
        for index, rule in enumerate(file.rules):
            if not isinstance(rule, ProvenanceRule) or rule.of != "guarded":
                continue
            if _RECORDED.issuperset(rule.rungs):
                message = f"the rule can never apply: no tool has results to record; {fix}"
                line = file.source.line(("rules", index))
                yield PolicyProblem(file.source.path, line, message, rule.id)
        for place, entry in file.content.mappings() if asks else ():
            if entry.object:
                message = f"`object` can never be tainted: no tool has results to record; {fix}"
                yield PolicyProblem(file.source.path, file.source.line((*place, "object")), message)
