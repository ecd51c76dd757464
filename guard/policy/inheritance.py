"""Inheritance from the policies that ship with the guard: ``extends`` and ``profile``.

A file wins over what it extends: its rule takes the place of one of the same id, its mapping of a
tool comes first, its ``state``, ``ask``, ``egress`` and ``identity`` stand alone.
``internal_domains`` and ``allow`` of a shipped policy are examples and are never taken over.  The
profile of a server brings mappings and stores for that server's tools alone, and of its rules
those that restrict.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import PolicyError, PolicyProblem
from guard.core.policy import Action
from guard.policy.memory_schema import states_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.policy.rules.base import RuleConfig
    from guard.policy.schema import PolicyDocument, PolicyFile, ServerEntrySchema
    from guard.policy.yaml_loader import Location

_STANDS_ALONE: Final = ("state", "ask", "approvals", "egress", "identity")
"""Sections that are taken whole from the first file that has them."""


def with_inherited(
    files: Sequence[PolicyFile], load: Callable[[Path], PolicyFile]
) -> tuple[list[PolicyFile], list[PolicyProblem], list[PolicyProblem]]:
    """Return the files with the shipped ones behind them, what is wrong, and what was replaced.

    Args:
        files: as the operator named them.
        load: reads one file.
    """
    taken = _Taken(list(files), load)
    for file in files:
        for index, reference in enumerate(file.content.extends):
            taken.extend(file, ("extends", index), reference)
        for number, server in enumerate(file.content.servers):
            for index, reference in enumerate(server.profile):
                taken.profile(file, ("servers", number, "profile", index), server, reference)
    return taken.files, taken.problems, taken.replaced


_METHODS: Final = (
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/get",
    "completion/complete",
)
"""Requests of MCP that are calls without being tools: no server lists a definition of them."""


class _Taken:
    """Collects files.

    Args:
        files: the operator's.
        load: reads one file.
    """

    def __init__(self, files: list[PolicyFile], load: Callable[[Path], PolicyFile]) -> None:
        self.files = files
        self.problems: list[PolicyProblem] = []
        self.replaced: list[PolicyProblem] = []
        self._load = load
        self._rules: dict[str, tuple[PolicyFile, int, RuleConfig]] = {}
        for file in files:
            for index, rule in enumerate(file.rules):
                self._rules.setdefault(rule.id, (file, index, rule))

    def extend(self, file: PolicyFile, place: Location, reference: str) -> None:
        """Take a whole policy, and what it extends in turn."""
        base = self._shipped(file, place, reference)
        if base is None or any(base.source.path == one.source.path for one in self.files):
            return
        self._add(replace(base, content=self._own(base.content), rules=self._fresh(base)))
        for index, further in enumerate(base.content.extends):
            self.extend(base, ("extends", index), further)

    def profile(
        self, file: PolicyFile, place: Location, server: ServerEntrySchema, reference: str
    ) -> None:
        """Take what a policy says of one server's tools."""
        base = self._shipped(file, place, reference)
        if base is None:
            return
        content = self._own(base.content).model_copy(update={"http_tools": (), "deny": ()})
        restricting = [rule for rule in self._fresh(base) if rule.effect is not Action.ALLOW]
        self._add(
            replace(
                base,
                content=content,
                rules=tuple(restricting),
                server=server.name,
                only=frozenset({*server.pins, *_METHODS}) if server.pins is not None else None,
            )
        )

    def _add(self, file: PolicyFile) -> None:
        self.files.append(replace(file, inherited=True))

    def _shipped(self, file: PolicyFile, place: Location, reference: str) -> PolicyFile | None:
        """Return a shipped policy; None where there is none, or not of that revision."""
        name, _, revision = reference.partition("@")
        try:
            base = self._load(Path(name))
        except PolicyError as error:
            self._problem(file, place, error.problems[0].message)
            return None
        there = base.content.revision
        if revision and int(revision) != there:
            self._problem(
                file,
                place,
                f"`{name}` is at revision {there} here, not {revision}; read `guard policies show "
                f"{name.partition(':')[2]}` and the changelog, then write `{name}@{there}`",
            )
            return None
        return base

    def _problem(self, file: PolicyFile, place: Location, message: str) -> None:
        self.problems.append(PolicyProblem(file.source.path, file.source.line(place), message))

    def _own(self, content: PolicyDocument) -> PolicyDocument:
        """Return what is taken of a shipped policy's content."""
        first = self.files[0].content
        update: dict[str, Any] = {"internal_domains": (), "allow": (), "servers": ()}
        update["mode"] = first.mode
        for name in _STANDS_ALONE:
            if any(getattr(file.content, name) is not None for file in self.files):
                update[name] = None
        sections = [f.content.memory for f in self.files if f.content.memory is not None]
        memory = next(filter(states_settings, sections), None)
        if memory is not None and content.memory is not None:
            parts = {
                part: getattr(content.memory, part) for part in ("writes", "proposals", "reads")
            }
            update["memory"] = memory.model_copy(update=parts)
        return content.model_copy(update=update)

    def _fresh(self, base: PolicyFile) -> tuple[RuleConfig, ...]:
        """Return the rules whose ids no earlier file has; note each that is replaced."""
        kept: list[RuleConfig] = []
        for index, rule in enumerate(base.rules):
            earlier, at, its = self._rules.setdefault(rule.id, (base, index, rule))
            if its is rule:
                kept.append(rule)
            elif earlier.source.path != base.source.path:
                line = earlier.source.line(("rules", at, "id"))
                place = f"{base.source.path}:{base.source.line(('rules', index, 'id'))}"
                message = f"this rule stands in the place of the one at {place}"
                self.replaced.append(PolicyProblem(earlier.source.path, line, message, rule.id))
        return tuple(kept)
