"""Rewriting of policy files that name removed fields; every other character stays as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from guard.core.errors import InputError
from guard.policy.rules.content import REMOVED_FINDINGS
from guard.policy.rules.result import REMOVED as REMOVED_DETECTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COMMENT: Final = re.compile(r"[\s,\]}]*(#.*)")
"""A comment behind the last value of a line."""
_WEAKER: Final = "the policy is weaker by that"


def migrated(text: str, detector: str | None) -> tuple[str, list[str]]:
    """Return a policy without removed fields, and one line per change.

    A comment in a removed part stays, on a line of its own.

    Args:
        text: of the policy file.
        detector: replacement for the removed reader of instructions; None removes its rules.

    Raises:
        InputError: the text is not YAML.
    """
    try:
        document = YAML().compose(text)
    except YAMLError as error:
        raise InputError(f"not a policy: {type(error).__name__}") from error
    key, rules = _fields(document).get("rules", (None, None))
    if key is None or not isinstance(rules, SequenceNode):
        return text, []
    edit, empty = _Edit(text), []
    changes: list[str] = []
    for index, rule in enumerate(rules.value):
        fields = _fields(rule)
        rewrite = _REWRITES.get(_text(fields, "type"))
        if rewrite is None:
            continue
        name = _text(fields, "id") or index
        for line in rewrite(edit, rule, detector):
            if not line:
                empty.append(index)
            changes.append(f"rule `{name}`: {line or f'removed: {_WEAKER}'}")
    edit.remove(key, rules, empty)
    return edit.result(), changes


@dataclass(slots=True)
class _Edit:
    """Replacements of parts of a text; one in a part that is removed as a whole has no effect."""

    text: str
    parts: dict[tuple[int, int], str] = field(default_factory=dict)

    def result(self) -> str:
        """Return the text with every replacement."""
        out, at = [], 0
        for start, end in sorted(self.parts, key=lambda part: (part[0], -part[1])):
            if start >= at:
                out += [self.text[at:start], self.parts[start, end]]
                at = end
        return "".join((*out, self.text[at:]))

    def remove(self, key: Node, sequence: SequenceNode, indexes: list[int]) -> None:
        """Remove items of a sequence that is the value of a key."""
        for index in indexes:
            if sequence.flow_style:
                self._remove_flow_item(sequence.value, index)
            else:
                self._remove_block_item(sequence.value[index])
        if len(indexes) == len(sequence.value) and not sequence.flow_style:
            end = self.text.index(":", key.end_mark.index) + 1
            self.parts[end, end] = " []"

    def add(self, after: Node, line: str, *, flow: bool, column: int) -> None:
        """Add a field of a mapping after a value."""
        at = after.end_mark.index
        if not flow:
            at = self._line_end(at)
        self.parts[at, at] = f", {line}" if flow else f"\n{' ' * column}{line}"

    def replace(self, node: Node, replacement: str) -> None:
        """Replace a value."""
        self.parts[node.start_mark.index, node.end_mark.index] = replacement

    def _remove_flow_item(self, items: list[Any], index: int) -> None:
        start, end = items[index].start_mark.index, items[index].end_mark.index
        comma = re.compile(r"\s*,[ ]*").match(self.text, end)
        if comma is not None:
            end = comma.end()
        elif index:
            between = self.text[items[index - 1].end_mark.index : start]
            start -= len(between) if between.strip(", \n") == "" else 0
        self.parts[start, end] = ""

    def _remove_block_item(self, item: Node) -> None:
        start = self.text.rindex("-", 0, item.start_mark.index)
        start = self.text.rfind("\n", 0, start) + 1
        ends = {leaf.end_mark.line: leaf.end_mark.index for leaf in _leaves(item)}
        last = max(ends.values())
        end = min(self._line_end(last) + 1, len(self.text))
        if self.text[last - 1] == "\n":  # A block scalar ends behind its line.
            end = last
        indent = " " * (item.start_mark.column - 2)
        kept = []
        offset, number = start, self.text.count("\n", 0, start)
        for line in self.text[start:end].splitlines(keepends=True):
            behind = ends.get(number)
            comment = (
                re.match(r"\s*(#.*)", line)
                if behind is None
                else _COMMENT.match(line, behind - offset)
            )
            kept += [f"{indent}{comment[1]}\n"] if comment is not None else []
            offset, number = offset + len(line), number + 1
        self.parts[start, end] = "".join(kept)

    def _line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end


def _leaves(node: Node) -> Iterator[Node]:
    """Yield the parts of a node whose ends are exact: scalars, and collections in brackets."""
    if isinstance(node, ScalarNode) or getattr(node, "flow_style", False):
        yield node
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield from (*_leaves(key), *_leaves(value))
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from _leaves(item)


def _fields(node: Node | None) -> dict[str, tuple[Node, Node]]:
    """Return the fields of a mapping, each with the node of its name."""
    found = node.value if isinstance(node, MappingNode) else []
    return {key.value: (key, value) for key, value in found if isinstance(key, ScalarNode)}


def _text(fields: dict[str, tuple[Node, Node]], name: str) -> str:
    value = fields[name][1] if name in fields else None
    return str(value.value) if isinstance(value, ScalarNode) else ""


def _content(edit: _Edit, rule: MappingNode, detector: str | None) -> Iterator[str]:
    """Edit a rule `content`; yield the changes, at last an empty text if the rule must go."""
    del detector
    key, finds = _fields(rule).get("finds", (rule, None))
    if not isinstance(finds, SequenceNode):
        return
    removed = [i for i, item in enumerate(finds.value) if item.value in REMOVED_FINDINGS]
    for index in removed:
        code = finds.value[index].value
        yield f"removed `{code}` from `finds`: {_WEAKER}; {REMOVED_FINDINGS[code]}"
    if len(removed) < len(finds.value):
        edit.remove(key, finds, removed)
    elif removed:
        yield ""


def _result(edit: _Edit, rule: MappingNode, detector: str | None) -> Iterator[str]:
    """Edit a rule `result`; yield the changes, at last an empty text if the rule must go."""
    fields = _fields(rule)
    key, finds = fields.get("finds", (rule, None))
    if finds is None and detector:
        first, type_ = fields["type"]
        flow, column = bool(rule.flow_style), first.start_mark.column
        edit.add(type_, f"finds: [{detector}]", flow=flow, column=column)
    elif finds is not None:
        if not isinstance(finds, SequenceNode):
            return
        names = [item.value for item in finds.value]
        if REMOVED_DETECTOR not in names:
            return
        if detector:
            edit.replace(finds.value[names.index(REMOVED_DETECTOR)], detector)
        elif names != [REMOVED_DETECTOR]:
            edit.remove(key, finds, [names.index(REMOVED_DETECTOR)])
            yield f"removed `{REMOVED_DETECTOR}` from `finds`: {_WEAKER}"
            return
    if detector:
        yield f"`finds` names the detector `{detector}` instead of `{REMOVED_DETECTOR}`"
        return
    yield f"it used `{REMOVED_DETECTOR}` alone; `--detector NAME` keeps the rule"
    yield ""


_REWRITES: Final[dict[str, Callable[[_Edit, MappingNode, str | None], Iterator[str]]]] = {
    "content": _content,
    "result": _result,
}
"""Rewrite of a rule, by rule type; it yields what it changed."""
