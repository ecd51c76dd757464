"""Containment: the items of an incident, recognised in results and in new writes.  Pure.

An item is known again by its whole text, by an evident value of it, or by half of its passages (or
half of a shorter text's), never by one passage alone: what is common must not keep others' items
away.  A result is taken apart along its lists; what cannot be taken apart is withheld whole.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from guard.core.json_values import strings_in_order
from guard.core.labels import LabelSet
from guard.extensions.propagation.events import CONTAINED_KIND, MARK, Event
from guard.extensions.propagation.evidence import Marks, marks_of, values_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from guard.core.model import Destination, Json
    from guard.provenance.seal import Seal

EPOCH: Final = b"e"
"""Field that changes whenever what is contained does; it is read with every recall and save."""
ITEM: Final = b"c"
FOUND: Final = b"f"
"""Before a node: that a detector found its save to look poisoned."""
CURSOR: Final = b"w"
"""Field of how far the log of events was judged."""
HALF: Final = 0.5
FEWEST: Final = 2
"""Passages that a text must share with an item, at least."""
CONTAINED_LIMIT: Final = 100_000
WITHHELD: Final = "memory_contained"
"""Reason code of a result or write that carries a contained item."""
SUSPECTED: Final = "memory_suspected"
"""Reason code of a send that follows from an item that looks poisoned."""
KEY_TEXT: Final = 16
"""Characters of the shortest member name that is looked at like a text."""
_SIZES: Final = struct.Struct(">BBB")


def contained_set(tenant: str) -> LabelSet:
    """Return where a tenant's contained items lie."""
    return LabelSet(CONTAINED_KIND, (tenant,), "", 0, CONTAINED_LIMIT)


def contained_field(
    seal: Seal, tenant: str, event: Event, innocent: set[bytes]
) -> tuple[bytes, bytes]:
    """Return the field and the sealed bytes that contain one item.

    Args:
        seal: the deployment's key.
        tenant: whose item.
        event: that saved it.
        innocent: marks that items outside of the incident have as well; by these it is not known
            again.
    """
    area, name = contained_set(tenant), ITEM + event.node
    values = [value[:MARK] for value in event.values if value not in innocent]
    runs = [run for run in event.runs if run not in innocent]
    wholes = [whole for whole in event.wholes if whole not in innocent]
    sizes = _SIZES.pack(len(values), len(runs), len(wholes))
    return name, seal.sealed(area, name, sizes + b"".join((*values, *runs, *wholes)))


@dataclass(slots=True)
class Contained:
    """The contained items of a tenant, by what they are known by."""

    seal: Seal
    is_evident: Callable[[Destination], bool]
    values: dict[bytes, set[bytes]] = field(default_factory=dict)
    runs: dict[bytes, list[bytes]] = field(default_factory=dict)
    sizes: dict[bytes, int] = field(default_factory=dict)
    """Passages of each item."""
    altered: int = 0
    """Records whose seal does not fit: what they contained is not known."""
    suspected: set[bytes] = field(default_factory=set)
    """Nodes of saves that look poisoned; they are not contained."""

    @classmethod
    def read(
        cls,
        seal: Seal,
        tenant: str,
        fields: Mapping[bytes, bytes],
        is_evident: Callable[[Destination], bool],
    ) -> Contained:
        """Return what the fields of a contained set say."""
        area, found = contained_set(tenant), cls(seal, is_evident)
        for name, raw in fields.items():
            if name.startswith(FOUND):
                found.suspected.add(name[len(FOUND) :])
            if not name.startswith(ITEM):
                continue
            body = seal.opened(area, name, raw)
            if body is None:
                found.altered += 1
            else:
                found._take(name[len(ITEM) :], body)
        return found

    def _take(self, node: bytes, body: bytes) -> None:
        values, runs, wholes = _SIZES.unpack_from(body)
        marks = [body[at : at + MARK] for at in range(_SIZES.size, len(body), MARK)]
        for mark in (*marks[:values], *marks[values + runs : values + runs + wholes]):
            self.values.setdefault(mark, set()).add(node)
        for mark in marks[values : values + runs]:
            self.runs.setdefault(mark, []).append(node)
        self.sizes[node] = runs

    def __bool__(self) -> bool:
        return bool(self.sizes) or self.altered > 0

    def found_in(self, texts: Iterable[str]) -> set[bytes]:
        """Return the contained items that stand in some texts of one record."""
        marks = marks_of(texts, self.is_evident)
        found: set[bytes] = set()
        for name in (*values_asked(marks.values), *marks.wholes):
            found |= self.values.get(self._short(name), set())
        return found | self._by_runs(marks)

    def _by_runs(self, marks: Marks) -> set[bytes]:
        if not self.runs:
            return set()
        shared: Counter[bytes] = Counter()
        for passage in marks.runs:
            shared.update(self.runs.get(self._short(passage), ()))
        found: set[bytes] = set()
        for node, count in shared.items():
            if count >= FEWEST and count >= HALF * min(self.sizes[node], len(marks.runs)):
                found.add(node)
        return found

    def _short(self, mark: str) -> bytes:
        return self.seal.fingerprint(mark)[:MARK]


@dataclass(slots=True)
class TakenApart:
    """A result without its contained items."""

    content: Json
    """None where the whole of it is withheld."""
    nodes: set[bytes]


class _WholeError(Exception):
    """A contained item stands in what can only be withheld as a whole."""


def take_apart(content: Json, contained: Contained) -> TakenApart | None:
    """Return a result without what is contained; None where nothing of it is.

    A list loses the entries that carry a contained item.  A text that is JSON is taken apart like
    it.  Whatever else carries one is withheld with all that it stands in, up to the next list.
    """
    nodes: set[bytes] = set()
    try:
        left = _left(content, contained, nodes)
        is_empty = isinstance(left, dict) and left.get("content") == []
        if nodes and (is_empty or contained.found_in(strings_in_order(left))):
            left = None
    except (_WholeError, RecursionError):
        left = None
    return TakenApart(left, nodes) if nodes or left is None else None


def _left(value: Json, contained: Contained, nodes: set[bytes]) -> Any:
    if isinstance(value, str):
        return _text_left(value, contained, nodes)
    if isinstance(value, list):
        kept = []
        for one in value:
            try:
                kept.append(_left(one, contained, nodes))
            except _WholeError:
                continue
        return kept
    if isinstance(value, dict):
        for name in value:
            if len(name) >= KEY_TEXT:
                _text_left(name, contained, nodes)
        return {name: _left(inner, contained, nodes) for name, inner in value.items()}
    return value


def _text_left(text: str, contained: Contained, nodes: set[bytes]) -> str:
    stripped = text.strip()
    if stripped[:1] in {"{", "["}:
        try:
            document = json.loads(stripped)
        except (ValueError, RecursionError):
            pass
        else:
            before = len(nodes)
            left = _left(document, contained, nodes)
            return text if len(nodes) == before else json.dumps(left, ensure_ascii=False)
    found = contained.found_in((text,))
    if found:
        nodes |= found
        raise _WholeError
    return text
