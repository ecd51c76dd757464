"""Rewriting of policy files that name removed fields, with their comments kept."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from guard.core.errors import InputError
from guard.policy.rules.content import ContentRule
from guard.policy.rules.result import REMOVED as REMOVED_DETECTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def migrated(text: str, detector: str | None) -> tuple[str, list[str]]:
    """Return a policy without removed fields, and one line per change.

    Args:
        text: of the policy file.
        detector: replacement for the removed reader of instructions; None removes its rules.

    Raises:
        InputError: the text is not YAML.
    """
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 1 << 16
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        document = yaml.load(text)
    except YAMLError as error:
        raise InputError(f"not a policy: {type(error).__name__}") from error
    found = document.get("rules") if isinstance(document, dict) else None
    rules: list[Any] = found if isinstance(found, list) else []
    changes: list[str] = []
    for index in reversed(range(len(rules))):
        rule = rules[index]
        rewrite = _REWRITES.get(str(rule.get("type"))) if isinstance(rule, dict) else None
        lines = list(rewrite(rule, detector)) if rewrite is not None else []
        changes[:0] = [f"rule `{rule.get('id', index)}`: {line}" for line in lines]
        if lines and not rule.get("finds"):
            del rules[index]
    if not changes:
        return text, changes
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue(), changes


def _content(rule: Any, detector: str | None) -> Iterator[str]:
    del detector
    finds = rule.get("finds")
    for code in list(finds) if isinstance(finds, list) else ():
        if code not in ContentRule.codes:
            finds.remove(code)
            rest = "" if finds else "; the rule is removed, as it found nothing else"
            yield f"removed `{code}` from `finds`: no rule of this type finds it{rest}"


def _result(rule: Any, detector: str | None) -> Iterator[str]:
    finds = rule.get("finds", [REMOVED_DETECTOR])
    if REMOVED_DETECTOR not in finds:
        return
    left = [name for name in finds if name != REMOVED_DETECTOR]
    replaced = [*left, *([detector] if detector else [])]
    if "finds" in rule:
        rule["finds"] = replaced
    else:
        # Behind `type`: a comment behind the last field stays there.
        rule.insert(list(rule).index("type") + 1, "finds", replaced)
    if detector:
        yield f"`finds` names the detector `{detector}` instead of `{REMOVED_DETECTOR}`"
    elif left:
        yield f"removed `{REMOVED_DETECTOR}` from `finds`: the policy is weaker by that"
    else:
        yield "removed: the policy is weaker by that; `--detector NAME` keeps the rule"


_REWRITES: dict[str, Callable[[Any, str | None], Iterator[str]]] = {
    "content": _content,
    "result": _result,
}
"""Rewrite of a rule in place, by rule type; it yields what it changed."""
