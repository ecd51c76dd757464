"""A tool's result as documents: texts that a strict reader takes apart, and what is given so.

Pure: no I/O.  A text is read as JSON, one document or one on each line; where the policy speaks of
fields also as the block YAML that tools print and as a printed Python value; each without
duplicate keys, aliases or tags.  Whatever can be read in two ways, or not at all, stays a text.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Json
    from guard.core.tool_mapping import LinkFields, MessageFields, ToolMapping

YAML_LIMIT: Final = 64 * 1024
PYTHON_LIMIT: Final = 64 * 1024
"""Characters of a text that is read as YAML, or as a printed Python value."""
DEPTH_LIMIT: Final = 48
_ITEMS: Final = "$[*]"
"""How a path begins that speaks of the items of a list."""


class _AmbiguousError(Exception):
    """The text can be read in two ways, or not at all."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Texts that a result gives apart from each other: the items of a list, each in its own."""

    texts: tuple[str, ...]


Root: TypeAlias = "Json | Blocks"


def roots_of(content: Json) -> list[Root]:
    """Return the documents of a result: its text blocks and its structured form, or itself.

    MCP gives a result as ``content`` blocks and often again as ``structuredContent``; some agents
    record the blocks alone.
    """
    if isinstance(content, list) and content and all(map(_is_text_block, content)):
        content = {"content": content}
    if not isinstance(content, dict):
        return [] if content is None else [content]
    blocks = content.get("content")
    structured = content.get("structuredContent")
    if not isinstance(blocks, list):
        return [content]
    texts = [_text_of(block) for block in blocks if _is_text_block(block)]
    roots: list[Root] = [Blocks(tuple(texts))] if len(texts) > 1 else list(texts)
    roots += [
        block
        for block in blocks
        if not _is_text_block(block)
        and (not isinstance(block, dict) or "text" in block or block.get("type") != "text")
    ]
    if structured is not None:
        # The SDK wraps what is no object.
        wrapped = isinstance(structured, dict) and set(structured) == {"result"}
        roots.append(structured["result"] if wrapped else structured)
    rest = {key: content[key] for key in content if key not in {"content", "structuredContent"}}
    return [*roots, rest] if rest else roots


def _is_text_block(block: Json) -> bool:
    """Return whether a block is text and says nothing besides."""
    if not isinstance(block, dict) or not block.keys() <= _TEXT_BLOCK or len(block) > len(_TEXT):
        return False
    return block.get("type", "text") == "text" and isinstance(_text_of(block), str)


def _text_of(block: dict[str, Json]) -> Any:
    return block.get("text", block.get("content"))


_TEXT: Final = ("type", "text")
_TEXT_BLOCK: Final = frozenset({*_TEXT, "content"})


def fields_document(root: Root, mapping: ToolMapping | None) -> Any:
    """Return a document as a mapping's fields and messages speak of it; a text may stay one."""
    wants_fields = mapping is not None and bool(mapping.fields)
    document = _read(root, every_format=wants_fields)
    if mapping is None or not isinstance(document, dict):
        return document
    paths = [field.path.text for field in mapping.fields]
    if mapping.messages is not None and mapping.messages.each.text == _ITEMS:
        paths.append(f"{_ITEMS}.")
    return _as_items(root, document, paths)


def messages_document(root: Root, where: MessageFields | LinkFields) -> Any:
    """Return a document as paths to its messages speak of it; a text may stay one."""
    document = _read(root, every_format=True)
    return _as_items(root, document, [f"{_ITEMS}."]) if where.each.text == _ITEMS else document


def _as_items(root: Root, document: Any, paths: list[str]) -> Any:
    """Return a lone item as the list that the paths speak of; anything else as it is.

    A list of one thing is given as that thing by more than one framework, and a tool for many
    things has a sister for one.  Not so in YAML: any letter with a colon in it is that.
    """
    if not isinstance(document, dict) or _ITEMS in paths or not _is_quoted(root):
        return document
    speaks = any(path.startswith((f"{_ITEMS}.", f"{_ITEMS}[")) for path in paths)
    is_item = speaks and not all(isinstance(value, dict | list) for value in document.values())
    return [document] if is_item else document


def _is_quoted(root: Root) -> bool:
    """Return whether the texts in a document are quoted, so that none can imitate a field."""
    return not isinstance(root, str) or root.lstrip()[:1] in {"{", "["}


def _read(root: Root, *, every_format: bool) -> Any:
    if isinstance(root, Blocks):
        return [parsed(text, every_format=every_format and _is_quoted(text)) for text in root.texts]
    return parsed(root, every_format=every_format) if isinstance(root, str) else root


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
        if "\n" in bare:
            readers.append((len(bare), _json_lines))
        if every_format:
            readers.append((PYTHON_LIMIT, _python))
    elif bare[:1] == '"' and "\n" in bare:
        readers.append((len(bare), _json_lines))
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


def _json_lines(text: str) -> Json:
    """Return the documents of a text that has one on each line; a line break inside is escaped."""
    return [_json(line) for line in text.splitlines() if line.strip()]


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
