"""A tool's result taken apart: which text has which label.  Pure: no I/O.

A declared field label applies to a result that a strict reader can take apart in one way only
(guard/provenance/result_documents.py).  Whatever does not parse is one text with the label of the
whole result, so text that imitates a field changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from guard.content.injection_text import instructs
from guard.core.jsonpath import member_path
from guard.core.model import Integrity
from guard.provenance.result_documents import Blocks, fields_document
from guard.provenance.senders import senders_in, source_mark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.core.model import Json
    from guard.core.tool_mapping import ToolMapping
    from guard.provenance.result_documents import Root


@dataclass(frozen=True, slots=True)
class Leaf:
    """One text of a result and its label."""

    text: str
    label: Integrity
    whole: bool
    """Whether it is a whole string of a structure, and so may be a handle by itself."""
    origin: bytes = b""
    """Mark of the one source that it came from; empty where none is known."""


def vouched(leaf: Leaf) -> Leaf:
    """Return the text with its label; one that instructs a model vouches for nothing in it."""
    if leaf.label is not Integrity.UNTRUSTED and instructs(leaf.text, deep=False):
        return replace(leaf, label=Integrity.UNTRUSTED)
    return leaf


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
    if not isinstance(root, Blocks):
        yield from _walk(labels, origins, ("$", document, default, origin))
        return
    for index, item in enumerate(document):
        path = f"$[{index}]"
        if isinstance(item, str) and path not in labels:
            # Prose in several blocks, and no list of names.
            yield Leaf(item, default, whole=False, origin=origins.get(path, origin))
        else:
            yield from _walk(labels, origins, (path, item, default, origin))


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
