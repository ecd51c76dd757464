"""A tool's result taken apart: which text has which label.  Pure: no I/O.

A declared field label applies to a result that a strict reader can take apart in one way only:
JSON, the block YAML that tools print, or a printed Python value, each without duplicate keys,
aliases or tags.  Whatever does not parse is one text with the label of the whole result, so text
that imitates a field changes nothing.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from guard.core.injection_text import instructs
from guard.core.jsonpath import member_path
from guard.core.model import Integrity
from guard.memory.senders import senders_in, source_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guard.core.model import Json
    from guard.core.policy import ToolMapping

YAML_LIMIT: Final = 64 * 1024
PYTHON_LIMIT: Final = 64 * 1024
"""Characters of a text that is read as YAML, or as a printed Python value."""
DEPTH_LIMIT: Final = 48
LEAF_COUNT: Final = 200_000
"""Strings of one result that are told apart; beyond it the result is one text."""


class _AmbiguousError(Exception):
    """The text can be read in two ways, or not at all."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One text of a result and its label."""

    text: str
    label: Integrity
    whole: bool
    """Whether it is a whole string of a structure, and so may be a handle by itself."""
    origin: bytes = b""
    """Mark of the one source that it came from; empty where none is known."""


def roots_of(content: Json) -> list[Json]:
    """Return the documents of a result: its text blocks and its structured form, or itself.

    MCP gives a result as ``content`` blocks and often again as ``structuredContent``.
    """
    if not isinstance(content, dict):
        return [] if content is None else [content]
    blocks = content.get("content")
    structured = content.get("structuredContent")
    if not isinstance(blocks, list):
        return [content]
    roots: list[Json] = [
        block["text"]
        if isinstance(block, dict) and set(block) <= _TEXT_BLOCK and isinstance(block["text"], str)
        else block
        for block in blocks
        if not isinstance(block, dict) or "text" in block or block.get("type") != "text"
    ]
    if structured is not None:
        # The SDK wraps what is no object.
        wrapped = isinstance(structured, dict) and set(structured) == {"result"}
        roots.append(structured["result"] if wrapped else structured)
    rest = {key: content[key] for key in content if key not in {"content", "structuredContent"}}
    return [*roots, rest] if rest else roots


_TEXT_BLOCK: Final = frozenset({"type", "text"})


def vouched(leaf: Leaf) -> Leaf:
    """Return the text with its label; one that instructs a model vouches for nothing in it."""
    if leaf.label is not Integrity.UNTRUSTED and instructs(leaf.text, deep=False):
        return replace(leaf, label=Integrity.UNTRUSTED)
    return leaf


def leaves_of(
    root: Json, mapping: ToolMapping | None, default: Integrity, origin: bytes = b""
) -> Iterator[Leaf]:
    """Yield the texts of one document with their labels; a label of a field beats the default.

    Args:
        root: the document.
        mapping: names fields with labels of their own, and messages with senders.
        default: label of the rest.
        origin: mark of the source of everything that no message of its own holds.
    """
    wants_fields = mapping is not None and bool(mapping.fields)
    document = parsed(root, every_format=wants_fields) if isinstance(root, str) else root
    if isinstance(document, str):
        yield Leaf(document, default, whole=False, origin=origin)
        return
    labels: dict[str, Integrity] = {}
    if mapping is not None:
        for field in mapping.fields:
            for path, _ in field.path.find(document):
                # Where two paths select one field, the lower label counts.
                labels[path] = min(labels.get(path, field.label), field.label)
    origins = _origins(document, mapping)
    yield from _walk(labels, origins, ("$", document, default, origin))


def _walk(
    labels: dict[str, Integrity],
    origins: dict[str, bytes],
    root: tuple[str, Json, Integrity, bytes],
) -> Iterator[Leaf]:
    """Yield the texts below a place: its path, what is there, its label, mark of its source."""
    stack = [root]
    tracked = bool(labels or origins)
    while stack:
        path, item, label, by = stack.pop()
        if tracked:
            label, by = labels.get(path, label), origins.get(path, by)
        if isinstance(item, str):
            yield Leaf(item, label, whole=True, origin=by)
        elif isinstance(item, dict):
            for key, inner in item.items():
                if not key.isidentifier():
                    yield Leaf(key, label, whole=True, origin=by)
                stack.append((member_path(path, key) if tracked else path, inner, label, by))
        elif isinstance(item, list):
            stack.extend(
                (f"{path}[{index}]" if tracked else path, inner, label, by)
                for index, inner in enumerate(item)
            )
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield Leaf(str(item), label, whole=True, origin=by)


def _origins(document: Json, mapping: ToolMapping | None) -> dict[str, bytes]:
    """Return the mark of who sent each message, by its path; empty where that is not one."""
    if mapping is None or mapping.messages is None:
        return {}
    found = senders_in(document, mapping.messages)
    return {
        path: source_mark(senders[0]) if len(set(senders)) == 1 else b""
        for path, senders in found.items()
    }


def parsed(text: str, *, every_format: bool) -> Json:
    """Return the structure that a text is, or the text itself where it is none.

    Args:
        text: a result.
        every_format: whether YAML and printed Python values are read too, and not only JSON.
    """
    bare = text.strip()
    readers: list[tuple[int, Callable[[str], Json]]] = []
    if bare[:1] in {"{", "["}:
        readers.append((len(bare), _json))
        if every_format:
            readers.append((PYTHON_LIMIT, _python))
    elif every_format and ("\n" in bare or ": " in bare or bare[:2] == "- "):
        readers.append((YAML_LIMIT, _yaml))
    for limit, reader in readers:
        try:
            document = reader(bare) if len(bare) <= limit else None
        except (_AmbiguousError, YAMLError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if isinstance(document, dict | list):
            return document
    return text


def _json(text: str) -> Json:
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise _AmbiguousError
    return document


def _python(text: str) -> Json:
    return _literal(ast.parse(text.strip(), mode="eval").body, 0)


def _literal(node: ast.expr, depth: int) -> Json:
    if depth > DEPTH_LIMIT:
        raise _AmbiguousError
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item, depth + 1) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [_literal(key, depth + 1) if key else None for key in node.keys]
        if not all(isinstance(key, str | int) for key in keys):
            raise _AmbiguousError
        values = [_literal(value, depth + 1) for value in node.values]
        return _unique(list(zip(map(str, keys), values, strict=True)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return f"-{_literal(node.operand, depth + 1)}"
    raise _AmbiguousError


def _yaml(text: str) -> Json:
    """Return a YAML document of mappings, sequences and texts; scalars stay texts."""
    stack: list[Any] = []
    keys: list[str | None] = []
    root: list[Json] = []
    for event in YAML(typ="safe").parse(text):
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _AmbiguousError
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            if event.tag is not None or len(stack) >= DEPTH_LIMIT:
                raise _AmbiguousError
            node: Any = {} if isinstance(event, MappingStartEvent) else []
            _place(node, stack, keys, root)
            stack.append(node)
            keys.append(None)
        elif isinstance(event, ScalarEvent):
            if event.tag is not None:
                raise _AmbiguousError
            _scalar(str(event.value), stack, keys, root)
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            stack.pop()
            keys.pop()
    if len(root) != 1:
        raise _AmbiguousError
    return root[0]


def _scalar(text: str, stack: list[Any], keys: list[str | None], root: list[Json]) -> None:
    if stack and isinstance(stack[-1], dict) and keys[-1] is None:
        if text in stack[-1] or text == "<<":
            raise _AmbiguousError
        keys[-1] = text
        return
    _place(text, stack, keys, root)


def _place(node: Json, stack: list[Any], keys: list[str | None], root: list[Json]) -> None:
    if not stack:
        root.append(node)
    elif isinstance(stack[-1], list):
        stack[-1].append(node)
    else:
        key = keys[-1]
        if key is None:
            # A mapping or a sequence as a key.
            raise _AmbiguousError
        stack[-1][key] = node
        keys[-1] = None
