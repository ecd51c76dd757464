"""Answers of graph memories: their items read, put into another order, or given a note.

Pure: no I/O.  An MCP result often has an answer twice, as text and as structure: both are read, and
both are changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.json_values import strings_in_order
from guard.extensions.graph_memory.replay import UnreplayedError
from guard.provenance.result_documents import Blocks, parsed, roots_of
from guard.provenance.selected_values import values_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.core.mappings import RankedMapping
    from guard.core.model import Json

MEMBER: Final = "_guard"
"""Name of a note in an answer that is one JSON object."""
_DEPTH: Final = 32


@dataclass(frozen=True, slots=True)
class Ranked:
    """An answer as it was read: its items, best first, and the names of their nodes."""

    items: tuple[Json, ...]
    names: tuple[str, ...]

    def taken(self, order: Sequence[int]) -> Ranked:
        """Return some of its items, in another order."""
        return Ranked(tuple(self.items[at] for at in order), tuple(self.names[at] for at in order))

    def places_of(self, other: Ranked) -> tuple[int | None, ...]:
        """Return the place of each item of another answer in this one; None where it is not there.

        One that has a value which can be a destination, and which this one's does not have, is
        another item under the same name.
        """
        at: dict[str, int] = {}
        for place, name in enumerate(self.names):
            at.setdefault(name, place)
        found: list[int | None] = []
        for name, item in zip(other.names, other.items, strict=True):
            if name in at and _values(item) <= _values(self.items[at[name]]):
                found.append(at[name])
            else:
                found.append(None)
        return tuple(found)


def _values(item: Json) -> set[str]:
    """Return the values in the texts of an item; its numbers may be scores, which differ."""
    return set(values_in(list(strings_in_order(item))))


def documents_in(content: Json) -> list[Json]:
    """Return the structures that an answer is: its texts parsed strictly, and its other forms."""
    found: list[Json] = []
    for root in roots_of(content):
        if isinstance(root, Blocks):
            found.append([parsed(text, every_format=False) for text in root.texts])
        elif isinstance(root, str):
            found.append(parsed(root, every_format=False))
        else:
            found.append(root)
    return [document for document in found if isinstance(document, dict | list)]


def read_ranked(mapping: RankedMapping, content: Json, *, may_be_empty: bool = False) -> Ranked:
    """Return the items of an answer.

    Args:
        mapping: where they are.
        content: of the result.
        may_be_empty: whether an answer without items is one; else it is none that was understood.

    Raises:
        UnreplayedError: they are not where they should be, or two forms of the answer differ.
    """
    found: dict[tuple[str, ...], Ranked] = {}
    for document in documents_in(content):
        items = tuple(value for _, value in mapping.items.find(document))
        names = tuple(
            name for item in items for _, name in mapping.id.find(item) if isinstance(name, str)
        )
        if len(names) != len(items):
            raise UnreplayedError("unread_answer")
        if items:
            found[names] = Ranked(items, names)
    if may_be_empty and not found and documents_in(content):
        return Ranked((), ())
    if len(found) != 1:
        raise UnreplayedError("unread_answer")
    return next(iter(found.values()))


def reordered(content: Json, mapping: RankedMapping, order: Sequence[int]) -> Json:
    """Return an answer with some of its items, in another order, wherever it has them.

    Args:
        content: of the result.
        mapping: where its items are.
        order: places of the items to keep, the new first one first.

    Returns:
        None where the items are not one whole list, or stand in a text that is not one document.
    """

    def change(document: Json) -> Json:
        items = [value for _, value in mapping.items.find(document)]
        return _with_list(document, items, [items[place] for place in order]) if items else document

    try:
        return _changed(content, change)
    except (ValueError, IndexError, RecursionError):
        return None


def annotated(content: Json, note: str, fields: dict[str, Json]) -> Json:
    """Return an answer with a note beside it; None where there is no place for one.

    A result of MCP gets one more text and a member of its ``_meta``; another object, or a text that
    is one, gets the member ``_guard``; any other text gets a paragraph.
    """
    if isinstance(content, dict) and isinstance(content.get("content"), list):
        meta = content.get("_meta")
        before = meta if isinstance(meta, dict) else {}
        told = {**before, "guard": {"selection": fields}}
        block: Json = {"type": "text", "text": note}
        return {**content, "content": [*content["content"], block], "_meta": told}
    if isinstance(content, dict):
        return {**content, MEMBER: {"note": note, "selection": fields}}
    if not isinstance(content, str):
        return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return f"{content}\n\n{note}"
    if isinstance(document, dict):
        return json.dumps(annotated(document, note, fields), ensure_ascii=False)
    return None


def _changed(content: Json, change: Callable[[Json], Json]) -> Json:
    """Return an answer in which each of its documents was changed.

    Raises:
        ValueError: a text is not one JSON document, so the items may stand in its prose as well.
    """
    if isinstance(content, str):
        return _text_changed(content, change)
    if not isinstance(content, dict) or not isinstance(content.get("content"), list):
        return change(content)
    blocks = content["content"]
    texts = [block for block in blocks if _is_text(block)]
    if len(texts) == 1:
        text = {**texts[0], "text": _text_changed(texts[0]["text"], change)}
        left = [text if block is texts[0] else block for block in blocks]
    else:
        # Each item in a text of its own.
        apart = [parsed(block["text"], every_format=False) for block in texts]
        kept = {id(value): block for value, block in zip(apart, texts, strict=True)}
        left = [kept[id(value)] for value in change(apart)]
        left += [block for block in blocks if not _is_text(block)]
    found = {**content, "content": left}
    structured = content.get("structuredContent")
    if structured is not None:
        wrapped = isinstance(structured, dict) and set(structured) == {"result"}
        inner = change(structured["result"] if wrapped else structured)
        found["structuredContent"] = {"result": inner} if wrapped else inner
    return found


def _text_changed(text: str, change: Callable[[Json], Json]) -> str:
    json.loads(text)  # Not lines of JSON, nor prose: what is read strictly below is all of it.
    document = parsed(text, every_format=False)
    if isinstance(document, str):
        raise ValueError("a text is no document")  # noqa: TRY004  (of its contents, not of its type)
    return json.dumps(change(document), ensure_ascii=False)


def _is_text(block: Json) -> bool:
    return isinstance(block, dict) and isinstance(block.get("text"), str)


def _with_list(
    document: Json, before: Sequence[Json], after: Sequence[Json], depth: int = 0
) -> Json:
    """Return a document in which the list of these very items has given way to another.

    Raises:
        ValueError: no list has these items and no others.
    """
    if isinstance(document, list) and list(map(id, document)) == list(map(id, before)):
        return list(after)
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inner:
        if not isinstance(value, dict | list) or depth > _DEPTH:
            continue
        try:
            changed = _with_list(value, before, after, depth + 1)
        except ValueError:
            continue
        if isinstance(document, dict):
            return {**document, key: changed}
        return [*document[:key], changed, *document[key + 1 :]]
    raise ValueError("the items are not one list")
