"""A tool's result taken apart: documents, the texts in them with their labels, and who wrote them.

Pure: no I/O.  A text is read as JSON, one document or one on each line; where the policy speaks of
fields also as the block YAML that tools print and as a printed Python value; each without
duplicate keys, aliases or tags.  Whatever can be read in two ways, or not at all, stays one text
with the label of the whole result, so text that imitates a field changes nothing.

A source is what the call names as the place it reads (a URL in its arguments), and who sent the
messages in its result, where the policy says where senders are; never the whole tool.
"""

from __future__ import annotations

import ast
import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

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

from guard.core.json_values import strings_in_order
from guard.core.jsonpath import member_path
from guard.core.labels import VOUCHING, Channel
from guard.core.model import Integrity, Json
from guard.values.finding import find_destinations
from guard.values.instructions import matched_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from guard.core.calls import ToolResult
    from guard.core.mappings import (
        ItemFields,
        LinkFields,
        MessageFields,
        ResultField,
        ToolMapping,
    )

YAML_LIMIT: Final = 64 * 1024
PYTHON_LIMIT: Final = 64 * 1024
"""Characters of a text that is read as YAML, or as a printed Python value."""
DEPTH_LIMIT: Final = 48
_END: Final = object()
_OF_NODES: Final = (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
_ITEMS: Final = "$[*]"
"""Beginning of a path that speaks of the items of a list."""


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


def whole_text(root: Root) -> str:
    """Return all that a document says in its order, names of members included."""
    texts = root.texts if isinstance(root, Blocks) else strings_in_order(root, names=True)
    return "\n".join(texts)


def fields_document(root: Root, mapping: ToolMapping | None) -> Any:
    """Return a document as a mapping's fields and messages speak of it; a text may stay one."""
    wants_fields = mapping is not None and bool(mapping.fields or mapping.reading.messages)
    document = _read(root, every_format=wants_fields)
    if mapping is None or not isinstance(document, dict):
        return document
    paths = [field.path.text for field in mapping.fields]
    if mapping.reading.messages is not None and mapping.reading.messages.each.text == _ITEMS:
        paths.append(f"{_ITEMS}.")
    return _as_items(root, document, paths)


def document_of(root: Root) -> Any:
    """Return a document in the form that it has, whatever its format; a text may stay one."""
    return _read(root, every_format=True)


def messages_document(root: Root, where: MessageFields | LinkFields | ItemFields) -> Any:
    """Return a document as paths to its messages speak of it; a text may stay one."""
    document = _read(root, every_format=True)
    return _as_items(root, document, [f"{_ITEMS}."]) if where.each.text == _ITEMS else document


def messages_in(
    roots: Iterable[Root], where: MessageFields | LinkFields | ItemFields, limit: int | None = None
) -> Iterator[Json]:
    """Yield the messages, or items, of documents; of each document so many at most."""
    for root in roots:
        document = messages_document(root, where)
        found = () if isinstance(document, str) else where.each.find(document)
        yield from (message for _, message in islice(found, limit))


def items_in(content: Json, where: ItemFields) -> Iterator[tuple[str, Json]]:
    """Yield the items that a memory's result shows, each with its name."""
    for item in messages_in(roots_of(content), where):
        names = (name for _, name in where.id.find(item) if isinstance(name, str | int))
        for name in islice(names, 1):
            yield str(name), item


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
    events = (event for event in YAML(typ="safe").parse(text) if isinstance(event, _OF_NODES))
    root = _node(events, 0)
    if root is _END or next(events, None) is not None:
        raise _AmbiguousError
    return root


def _node(events: Iterator[Any], depth: int) -> Any:
    """Return the node that begins with the next event, ``_END`` where none does."""
    event = next(events, None)
    if event is None or isinstance(event, MappingEndEvent | SequenceEndEvent):
        return _END
    if isinstance(event, AliasEvent) or event.anchor is not None or event.tag is not None:
        raise _AmbiguousError
    if isinstance(event, ScalarEvent):
        return str(event.value)
    if depth >= DEPTH_LIMIT:
        raise _AmbiguousError
    nodes = list(iter(lambda: _node(events, depth + 1), _END))
    if isinstance(event, SequenceStartEvent):
        return nodes
    keys = nodes[::2]
    if not all(isinstance(key, str) and key != "<<" for key in keys) or len(set(keys)) < len(keys):
        raise _AmbiguousError
    return dict(zip(keys, nodes[1::2], strict=True))


@lru_cache(maxsize=1024)
def source_mark(name: str) -> bytes:
    """Return what a sender or URL host is known by in records and trust keys: 12 bytes."""
    data = name.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=12, person=b"source").digest()


def senders_in(document: Json, messages: MessageFields) -> dict[str, tuple[str, ...]]:
    """Return who sent each message of a document, by the message's path."""
    return {
        path: tuple(
            found.canonical
            for _, sender in messages.sender.find(message)
            for found in find_destinations(str(sender))
        )
        for path, message in messages.each.find(document)
    }


@dataclass(eq=False, slots=True)
class Entry:
    """One entry of a directory, with the names that people call it by."""

    names: list[str] = field(default_factory=list)


class Leaf(NamedTuple):
    """One text of a result and its label."""

    text: str
    label: Integrity
    whole: bool
    """True if it is a whole string of a structure, and so may be a handle by itself."""
    origin: bytes = b""
    """Mark of the one source that it came from; empty where none is known."""
    channel: Channel = Channel.RESULT
    """Writer of the text, where the policy declares one."""
    entry: Entry | None = None
    """The entry of a directory that it stands in, where that has a name."""
    kinds: frozenset[str] = frozenset()
    """Kinds of destination that it may vouch for; empty for every kind."""
    serves: tuple[str, ...] = ()
    """Further services that a handle in it is valid in."""


def vouched(leaf: Leaf) -> Leaf:
    """Return the text with its label; a pattern of instructions makes it untrusted."""
    if leaf.label is not Integrity.UNTRUSTED and matched_pattern(leaf.text) is not None:
        return leaf._replace(label=Integrity.UNTRUSTED, channel=Channel.RESULT)
    return leaf


_WRITERS: Final = (
    Channel.COUNTERPARTY,
    Channel.RESULT,
    Channel.OWN_RECORD,
    Channel.DIRECTORY,
)
"""Possible writers of a field, the least reliable first: of two that are declared, it counts."""


@dataclass(slots=True)
class _Declared:
    """Declarations of the policy about the parts of one document, by their paths."""

    fields: dict[str, ResultField] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    """By the path of what their name stands in."""
    origins: dict[str, bytes] = field(default_factory=dict)
    senders: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    """Paths of what entries are called."""

    @classmethod
    def of(cls, document: Json, mapping: ToolMapping | None) -> _Declared:
        """Return what a mapping declares of a document."""
        declared = cls()
        if mapping is None or not (mapping.fields or mapping.reading.messages):
            return declared
        for one in mapping.fields:
            for path, _ in one.path.find(document):
                before = declared.fields.setdefault(path, one)
                declared.fields[path] = min(before, one, key=_reliability)
            for path, name in one.names.find(document) if one.names is not None else ():
                if isinstance(name, str):
                    where = path[: path.rfind("['")]
                    declared.entries.setdefault(where, Entry()).names.append(name)
                    declared.names.add(path)
        declared._resolve_names()
        if mapping.reading.messages is not None:
            declared._take_messages(document, mapping.reading.messages)
        return declared

    def _resolve_names(self) -> None:
        """Let what an entry is called lead to the entry, and vouch for nothing by itself."""
        for path in self.names & self.fields.keys():
            if self.fields[path].channel in VOUCHING:
                del self.fields[path]

    def _take_messages(self, document: Json, messages: MessageFields) -> None:
        """Note who sent each message: an outsider wrote that, and so it says who, and no more."""
        for path, senders in senders_in(document, messages).items():
            self.origins[path] = source_mark(senders[0]) if len(set(senders)) == 1 else b""
        for path, message in messages.each.find(document):
            for inner, _ in messages.sender.find(message):
                self.senders.add(path + inner.removeprefix("$"))

    def below(self, path: str, above: Leaf) -> Leaf:
        """Return what holds at a path, given what holds above it."""
        origin = self.origins.get(path, above.origin)
        entry = self.entries.get(path, above.entry)
        declared, serves = self.fields.get(path), above.serves
        if declared is not None:
            serves = declared.serves
        if path in self.senders:
            # The writer of a message is an outsider, whatever a field promises.
            label, channel, kinds = Integrity.UNTRUSTED, Channel.COUNTERPARTY, above.kinds
        elif declared is not None:
            label, channel, kinds = declared.label, declared.channel, declared.kinds
        elif origin == above.origin and entry is above.entry:
            return above
        else:
            label, channel, kinds = above.label, above.channel, above.kinds
        return Leaf("", label, above.whole, origin, channel, entry, kinds, serves)


def _reliability(declared: ResultField) -> tuple[int, int]:
    return _WRITERS.index(declared.channel), declared.label


def leaves_of(
    root: Root, mapping: ToolMapping | None, default: Integrity, origin: bytes = b""
) -> Iterator[Leaf]:
    """Yield the texts of one document with their labels; a label of a field beats the default.

    Args:
        root: the document.
        mapping: names fields with labels of their own, and messages with senders.
        default: label of the rest.
        origin: mark of the source of everything that no message of its own holds.
    """
    document = fields_document(root, mapping)
    declared = _Declared.of(document, mapping)
    above = Leaf("", default, whole=True, origin=origin)
    if isinstance(document, str):
        at_root = declared.below("$", above)
        yield at_root._replace(text=document, whole="$" in declared.fields)
        return
    if not isinstance(root, Blocks):
        yield from _walk(declared, "$", document, above)
        return
    for index, item in enumerate(document):
        path = f"$[{index}]"
        if isinstance(item, str) and path not in declared.fields:
            # Prose in several blocks, and no list of names.
            yield declared.below(path, above)._replace(text=item, whole=False)
        else:
            yield from _walk(declared, path, item, above)


def _walk(declared: _Declared, start: str, document: Json, above: Leaf) -> Iterator[Leaf]:
    """Yield the texts at a path and below it."""
    stack: list[tuple[str, Json, Leaf]] = [(start, document, above)]
    tracked = bool(declared.fields or declared.origins or declared.senders)
    while stack:
        path, item, here = stack.pop()
        if tracked:
            here = declared.below(path, here)
        if isinstance(item, str):
            yield here._replace(text=item)
        elif isinstance(item, dict):
            for key, inner in item.items():
                if not key.isidentifier():
                    yield here._replace(text=key)
                stack.append((member_path(path, key) if tracked else path, inner, here))
        elif isinstance(item, list):
            stack.extend(
                (f"{path}[{index}]" if tracked else path, inner, here)
                for index, inner in enumerate(item)
            )
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield here._replace(text=str(item))


MOST: Final = 64
"""Sources of one result; beyond it the rest is not looked at, and the session has no known one."""
NONE: Final = frozenset[str]()


def marks_of(result: ToolResult) -> frozenset[bytes]:
    """Return the marks of an untrusted result's sources; worked out where it lacks them."""
    if result.sources is not None:
        return result.sources
    return frozenset(source_mark(name) for name in sources_of(result))


def sources_of(result: ToolResult) -> frozenset[str]:
    """Return the sources of an untrusted result; nothing for what the policy trusts."""
    mapping = result.call.classified.mapping
    if mapping is not None and mapping.source is not Integrity.UNTRUSTED:
        return NONE
    found: set[str] = set()
    for name in _named(result, mapping):
        found.add(name)
        if len(found) > MOST:
            break
    return frozenset(found)


def _named(result: ToolResult, mapping: ToolMapping | None) -> Iterator[str]:
    for text in strings_in_order(dict(result.call.call.arguments)):
        # Without the sign no URL is found, but in look-alikes.
        if "://" in text or not text.isascii():
            yield from (found.host for found in find_destinations(text) if found.kind == "url")
    # A page that is named without the sign of a URL.
    yield from (t.destination.host for t in result.call.targets if t.destination.kind == "host")
    if mapping is not None and mapping.reading.messages is not None:
        yield from _senders(result.content, mapping.reading.messages)


def _senders(content: Json, messages: MessageFields) -> Iterator[str]:
    for root in roots_of(content):
        for senders in senders_in(messages_document(root, messages), messages).values():
            yield from senders
