"""Rewriting of policy files that name removed fields; every other line stays as it is."""

from __future__ import annotations

from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.tokens import BlockEntryToken

from guard.core.errors import InputError
from guard.policy.rules.content import REMOVED as REMOVED_DETECTOR
from guard.policy.rules.content import REMOVED_FINDINGS

_REMOVED: Final = {
    "content": REMOVED_FINDINGS,
    "result": {REMOVED_DETECTOR: "`--detector NAME` puts another in its place"},
}
"""By rule type: what `finds` can name no longer, and what to do instead."""
_WEAKER: Final = "the policy is weaker by that"


def migrated(text: str, detector: str | None) -> tuple[str, list[str]]:
    """Return a policy without removed fields, and one line per change.

    What is removed from a list with one item per line stays there as a comment.

    Args:
        text: of the policy file.
        detector: replacement for the removed reader of instructions; None removes its rules.

    Raises:
        InputError: the text is not YAML, or what is to change in it has aliases.
    """
    changes: list[str] = []
    while (step := _step(text, detector)) is not None:
        _refuse_aliases(text)
        text, lines = step
        changes += lines
    return text, changes


def _refuse_aliases(text: str) -> None:
    """Refuse a text with aliases: the node of an alias is where its anchor is."""
    for event in YAML().parse(text):
        if isinstance(event, AliasEvent):
            line = event.start_mark.line + 1
            raise InputError(f"line {line}: alias `*{event.anchor}`; write its value out first")


def _step(text: str, detector: str | None) -> tuple[str, list[str]] | None:
    """Return the text after the first change that is due, and what was changed; None for none."""
    try:
        document = YAML().compose(text)
    except YAMLError as error:
        raise InputError(f"not a policy: {type(error).__name__}") from error
    key, rules = _fields(document).get("rules", (None, None))
    for index, rule in enumerate(rules.value if isinstance(rules, SequenceNode) else ()):
        fields = _fields(rule)
        kind, finds = _text(fields, "type"), fields.get("finds")
        # A rule `result` without `finds` used the removed reader.
        names = [REMOVED_DETECTOR] if finds is None and kind == "result" else []
        if finds is not None and isinstance(finds[1], SequenceNode):
            names = [str(item.value) for item in finds[1].value]
        gone = [at for at, one in enumerate(names) if one in _REMOVED.get(kind, {})]
        if not gone:
            continue
        name = f"rule `{_text(fields, 'id') or index}`"
        if kind == "result" and detector not in {None, REMOVED_DETECTOR}:
            line = f"{name}: `finds` names the detector `{detector}` instead of `{names[gone[0]]}`"
            if finds is None:
                return _with_field(text, *fields["type"], f"finds: [{detector}]", rule), [line]
            node = finds[1].value[gone[0]]
            return f"{text[: node.start_mark.index]}{detector}{text[node.end_mark.index :]}", [line]
        lines = [
            f"{name}: removed `{names[at]}` from `finds`: {_WEAKER}; {_REMOVED[kind][names[at]]}"
            for at in gone
        ]
        if finds is not None and len(gone) < len(names):
            return _without(text, *finds, gone), lines
        return _without(text, key, rules, [index]), [*lines, f"{name}: removed: {_WEAKER}"]
    return None


def _with_field(text: str, key: Any, value: Any, field: str, rule: Any) -> str:
    """Return a text with one more field of a rule behind another of its fields."""
    at, more = value.end_mark.index, f", {field}"
    if not rule.flow_style:
        at, more = text.find("\n", at), f"\n{' ' * key.start_mark.column}{field}"
        at = len(text) if at < 0 else at
    return f"{text[:at]}{more}{text[at:]}"


def _without(text: str, key: Any, sequence: Any, indexes: list[int]) -> str:
    """Return a text without some items of the sequence that is the value of a key."""
    items = sequence.value
    if sequence.flow_style:
        marks = [(i.start_mark.index, i.end_mark.index) for i in items]
        kept = [text[slice(*mark)] for at, mark in enumerate(marks) if at not in indexes]
        start, end = sequence.start_mark.index, sequence.end_mark.index
        return f"{text[:start]}[{', '.join(kept)}]{text[end:]}"
    lines = text.splitlines(keepends=True)
    dashes = [one.start_mark for one in YAML().scan(text) if isinstance(one, BlockEntryToken)]
    for item in (items[index] for index in indexes):
        dash = [mark for mark in dashes if mark.index < item.start_mark.index][-1]
        for at in range(dash.line, _last_line(item) + 1):
            if lines[at].strip() and not lines[at].lstrip().startswith("#"):
                lines[at] = f"{lines[at][: dash.column]}# {lines[at][dash.column :]}"
    if len(indexes) == len(items):
        at, column = key.end_mark.line, key.end_mark.column
        colon = lines[at].index(":", column) + 1
        lines[at] = f"{lines[at][:colon]} []{lines[at][colon:]}"
    return "".join(lines)


def _last_line(node: Any) -> int:
    """Return the line on which a node ends; a block scalar ends before the next line."""
    while isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1]
    line: int = node.end_mark.line
    return line if node.end_mark.column else line - 1


def _fields(node: Any) -> dict[str, tuple[Any, Any]]:
    """Return the fields of a mapping, each with the node of its name."""
    found = node.value if isinstance(node, MappingNode) else []
    return {key.value: (key, value) for key, value in found if isinstance(key, ScalarNode)}


def _text(fields: dict[str, tuple[Any, Any]], name: str) -> str:
    value = fields[name][1] if name in fields else None
    return str(value.value) if isinstance(value, ScalarNode) else ""
