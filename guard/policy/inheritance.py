"""Reading of policy files, and of the shipped ones that they name: ``extends``, ``profile``.

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
from guard.policy.field_types import Location, suggestion, validate
from guard.policy.memory_schema import states_settings
from guard.policy.rules import discover_rule_types
from guard.policy.schema import NESTED, PolicyDocument, PolicyFile, ServerEntrySchema
from guard.policy.yaml_loader import Document, load_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.model import Json
    from guard.policy.rules.base import RuleConfig

_STANDS_ALONE: Final = ("state", "ask", "approvals", "egress", "identity")
"""Sections that are taken whole from the first file that has them."""


def load_file(path: Path, text: str | None = None) -> PolicyFile:
    """Return one validated file, without what it extends; ``text`` stands for its content.

    Raises:
        PolicyError: with every problem found in it.
    """
    types = discover_rule_types()
    document = load_document(path, text)
    problems = list(document.problems)
    unreadable = {problem.line for problem in problems}
    rules: list[RuleConfig] = []
    content: PolicyDocument | None = None
    if document.value is not None or not problems:
        content, errors = validate(PolicyDocument, document.value, NESTED)
        for index, raw in enumerate(_raw_rules(document)):
            rule, more = _rule(raw, types)
            errors.extend((("rules", index, *location), message) for location, message in more)
            if rule is not None:
                rules.append(rule)
        problems.extend(
            PolicyProblem(document.path, document.line(location), message)
            for location, message in errors
            if document.line(location) not in unreadable
        )
    if problems or content is None:
        problems.sort(key=lambda problem: problem.line)
        raise PolicyError(tuple(_named(document, problem) for problem in problems))
    return PolicyFile(document, content, tuple(rules))


def _raw_rules(document: Document) -> Iterator[Json]:
    """Yield the rules as read; whatever is not a mapping the document's model has refused."""
    rules = document.value.get("rules") if isinstance(document.value, dict) else None
    if isinstance(rules, list):
        yield from rules


def _rule(
    raw: Json, types: dict[str, type[RuleConfig]]
) -> tuple[RuleConfig | None, list[tuple[Location, str]]]:
    if not isinstance(raw, dict):
        return None, []
    name = raw.get("type")
    if name is None:
        known = ", ".join(f"`{known}`" for known in sorted(types))
        return None, [((), f"missing field `type`; it is one of {known}")]
    rule_type = types.get(name) if isinstance(name, str) else None
    if rule_type is None:
        hint = suggestion(str(name), types) or f"; known are {', '.join(sorted(types))}"
        return None, [(("type",), f"unknown rule type `{name}`{hint}")]
    return validate(rule_type, raw, {(): rule_type})


def _named(document: Document, problem: PolicyProblem) -> PolicyProblem:
    """Add the id of the rule whose lines the problem lies in."""
    for index, raw in enumerate(_raw_rules(document)):
        start = document.lines[("rules", index)]
        end = document.ends.get(("rules", index), start + 1)
        if start <= problem.line < end and isinstance(raw, dict):
            identifier = raw.get("id")
            return replace(problem, rule=identifier) if isinstance(identifier, str) else problem
    return problem


def with_inherited(
    files: Sequence[PolicyFile],
) -> tuple[list[PolicyFile], list[PolicyProblem], list[PolicyProblem]]:
    """Return files with the shipped ones behind them, what is wrong, and what was replaced."""
    taken = _Taken(list(files))
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
    """Collects files, the operator's first."""

    def __init__(self, files: list[PolicyFile]) -> None:
        self.files = files
        self.problems: list[PolicyProblem] = []
        self.replaced: list[PolicyProblem] = []
        self._rules: dict[str, tuple[PolicyFile, int, RuleConfig]] = {}
        for file in files:
            for index, rule in enumerate(file.rules):
                self._rules.setdefault(rule.id, (file, index, rule))

    def extend(self, file: PolicyFile, place: Location, reference: str) -> None:
        """Take a whole policy, and what it extends in turn."""
        base = self._shipped(file, place, reference)
        if base is None or any(base.source.path == one.source.path for one in self.files):
            return
        content = self._own(base.content)
        self.files.append(replace(base, content=content, rules=self._fresh(base), inherited=True))
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
        self.files.append(
            replace(
                base,
                content=content,
                rules=tuple(restricting),
                server=server.name,
                only=frozenset({*server.pins, *_METHODS}) if server.pins is not None else None,
                inherited=True,
            )
        )

    def _shipped(self, file: PolicyFile, place: Location, reference: str) -> PolicyFile | None:
        """Return a shipped policy; None where there is none, or not of that revision."""
        name, _, revision = reference.partition("@")
        try:
            base = load_file(Path(name))
        except PolicyError as error:
            self.problems.append(file.problem(place, error.problems[0].message))
            return None
        there = base.content.revision
        if revision and int(revision) != there:
            advice = (
                f"`{name}` is at revision {there} here, not {revision}; read `guard policies show "
                f"{name.partition(':')[2]}` and the changelog, then write `{name}@{there}`"
            )
            self.problems.append(file.problem(place, advice))
            return None
        return base

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
                self.replaced.append(
                    PolicyProblem(
                        earlier.source.path,
                        line,
                        f"this rule stands in the place of the one at {place}",
                        rule.id,
                    )
                )
        return tuple(kept)
