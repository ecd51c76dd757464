"""Warnings about rules and mappings that have no effect, and about risky internal domains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import PolicyProblem
from guard.core.policy import Action, Mode
from guard.policy.vocabulary import public_mail_providers
from guard.policy.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.tool_patterns import ToolPattern
    from guard.policy.rules.base import RuleConfig
    from guard.policy.schema import PolicyFile

_NOTES: Final = frozenset({"id", "effect", "remedy", "description"})
"""Fields that do not say which calls a rule is about."""
_NEAR: Final = 0.8
"""Similarity of two names, of 1, from which one may be a slip for the other."""
_FILTERS: Final = frozenset({"roles", "tools", "mapped", "status", "rungs"})
"""Fields that keep calls out; without one, or with more values, a rule is about more calls."""


def idle_entries(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield rules and mappings without an effect, and internal domains that anybody can join.

    All are warnings.
    """
    rules = [(file, rule) for file in files for rule in file.rules]
    patterns = [
        one for file in files for _, entry in file.content.mappings() for one in entry.match
    ]
    pins = {name for file in files for server in file.content.servers for name in server.pins or {}}
    for file in files:
        if file.inherited:
            continue
        for index, rule in enumerate(file.rules):
            where = file.source.line(("rules", index))
            for message in (*_unmatched(rule, patterns, pins), *_shadowed(rule, file, rules)):
                yield PolicyProblem(file.source.path, where, message, rule.id)
        if rules and file.content.mode is not Mode.MONITOR:
            yield from _never_allowed(file, [rule for _, rule in rules])
        yield from _public_domains(file)


def _unmatched(rule: RuleConfig, patterns: Sequence[ToolPattern], pins: set[str]) -> Iterator[str]:
    """Yield the names of a rule that no tool of the policy has."""
    given = rule.tools or () if rule.mapped is not False else ()
    idle = [
        one
        for one in given
        if not any(map(one.matches, pins)) and not any(map(one.overlaps, patterns))
    ]
    names = {one.text for one in patterns if one.is_literal} | pins
    for pattern in idle:
        hint = suggestion(pattern.text, names, cutoff=_NEAR)
        # A rule may name tools before they are there; a near name is a slip.
        if hint or (len(idle) == len(given) and pattern is idle[0]):
            yield f"no mapped or pinned tool is called `{pattern.text}`{hint}"


def _shadowed(
    rule: RuleConfig, file: PolicyFile, rules: Sequence[tuple[PolicyFile, RuleConfig]]
) -> Iterator[str]:
    """Yield the rule that is about the same calls with a stricter effect, or the same one."""
    before = True
    for other_file, other in rules:
        if other is rule:
            before = False
        elif (other.effect > rule.effect or (other.effect is rule.effect and before)) and (
            _is_wider(other, rule)
        ):
            yield (
                f"`{other.id}` in `{other_file.source.path}` is about the same calls with effect "
                f"`{other.effect.label}`, so this rule never decides; remove it or narrow the other"
                if other_file is not file
                else f"`{other.id}` is about the same calls with effect `{other.effect.label}`, so "
                "this rule never decides; remove it or narrow the other"
            )
            return


def _is_wider(rule: RuleConfig, other: RuleConfig) -> bool:
    """Return whether a restricting rule is surely about every call that another is about."""
    if type(rule) is not type(other) or rule.effect is Action.ALLOW:
        return False
    for name in type(rule).model_fields.keys() - _NOTES:
        mine, theirs = getattr(rule, name), getattr(other, name)
        if mine == theirs or (name in _FILTERS and mine is None):
            continue
        if name not in _FILTERS or theirs is None or name == "mapped":
            return False
        if name == "tools":
            if not all(any(one.covers(each) for one in mine) for each in theirs):
                return False
        elif not set(theirs) <= set(mine):
            return False
    return True


def _never_allowed(file: PolicyFile, rules: Sequence[RuleConfig]) -> Iterator[PolicyProblem]:
    """Yield the mappings whose role no rule lets through: every call is blocked."""
    passing = [rule for rule in rules if rule.effect is not Action.BLOCK]
    if any(rule.roles is None and rule.mapped is not False for rule in passing):
        return
    known = {role for rule in passing if rule.mapped is not False for role in rule.roles or ()}
    for place, entry in file.content.mappings():
        if entry.role not in known:
            message = (
                f"no rule allows or asks about role `{entry.role}`, so each call of "
                f"`{entry.match[0].text}` is blocked; add one"
            )
            yield PolicyProblem(file.source.path, file.source.line((*place, "role")), message)


def _public_domains(file: PolicyFile) -> Iterator[PolicyProblem]:
    """Yield the internal domains of mail providers at which anybody can have a mailbox."""
    for index, domain in enumerate(file.content.internal_domains):
        if domain.removeprefix("*.").lower() in public_mail_providers():
            message = (
                f"anybody can have a mailbox at `{domain}`: list your own addresses in `allow`"
            )
            line = file.source.line(("internal_domains", index))
            yield PolicyProblem(file.source.path, line, message)
