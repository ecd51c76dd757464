"""Pinned tool definitions: what is stored of them, and how a new listing compares.  Pure: no I/O.

Trust on first use, per upstream and tool.  A pin holds the digests that are good; a tool that is
listed otherwise gets a mark, which stays until an operator answers it.  Both bear the seal of the
deployment, bound to upstream and tool.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guard.core.calls import Claim
from guard.core.declarations import ALTERED, CHANGED, NEW, UNPINNED, ToolDefinition
from guard.core.labels import LabelLookup, LabelSet, LabelWrite, LabelWriteMode
from guard.provenance.label_sets import MARKED, PINNED, pin_field, pin_set
from guard.provenance.seal import FINGERPRINT, SEAL, Seal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guard.core.model import Json

LISTING_LIMIT: Final = 1000
"""Tools of one listing that are pinned."""
TEXT_LIMIT: Final = 64 * 1024
"""Characters of a definition that are kept for people to compare; its digest is over all of it."""
OFFERS_LIMIT: Final = 50_000
"""Names of tools whose servers are remembered."""
DIGEST_LIMIT: Final = 8
"""Definitions of one tool that an operator may have approved."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A stored definition: one that is good, or one that waits for an operator."""

    upstream: str
    tool: str
    digests: tuple[str, ...]
    """The newest first."""
    text: str
    """Canonical definition of the newest; empty where it was too long to keep."""
    at: float
    is_mark: bool = False


@dataclass(slots=True)
class Comparison:
    """Effect of a listing on the pins of its upstream."""

    writes: list[LabelWrite] = field(default_factory=list)
    findings: list[tuple[str, ToolDefinition]] = field(default_factory=list)
    """Reason code and definition of each tool that is not as it was."""
    fresh: set[str] = field(default_factory=set)
    """Names of the tools whose finding was not known before."""


class Pins:
    """Reads and writes pins.

    Args:
        seal: the deployment's key.
    """

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def field(self, tool: str, kind: bytes) -> bytes:
        """Return the field of a tool's pin or mark."""
        return pin_field(self._seal, tool, kind)

    def mark(self, upstream: str, tool: str) -> LabelLookup:
        """Return the look-up of a tool's mark, which is sent with each attempt to call the tool."""
        return LabelLookup(pin_set(upstream), (pin_field(self._seal, tool, MARKED),))

    def marked(self, raw: object, upstream: str, tool: str) -> str:
        """Return the digest of the changed definition in a tool's mark, whatever lies there."""
        pin = self.read(raw, upstream, tool, MARKED)
        return pin.digests[0] if pin is not None and pin.digests else ALTERED

    def lookup(self, upstream: str, definitions: Sequence[ToolDefinition]) -> LabelLookup:
        """Return the look-up of the pin and the mark of each tool, and of the upstream's own."""
        fields = [self.field("", PINNED)]
        for definition in definitions[:LISTING_LIMIT]:
            fields += (self.field(definition.name, PINNED), self.field(definition.name, MARKED))
        return LabelLookup(pin_set(upstream), tuple(fields))

    def compare(
        self,
        upstream: str,
        definitions: Sequence[ToolDefinition],
        records: Sequence[object],
        at: float,
        declared: Mapping[str, str] | None = None,
    ) -> Comparison:
        """Return what to store and what was found.

        Args:
            upstream: whose listing it is.
            definitions: of the listing, in order.
            records: the answer to :meth:`lookup`.
            at: now.
            declared: digests that the policy declares, by tool: good whatever was seen first.

        Raises:
            ValueError: the answer does not fit the question.
        """
        found = Comparison()
        known = definitions[:LISTING_LIMIT]
        if len(records) != 2 * len(known) + 1:
            raise ValueError("the store answered another look-up than was asked")
        if not known:
            return found
        where, first, expected = pin_set(upstream), records[0] is None, declared or {}
        keep: list[tuple[bytes, bytes]] = []
        marks: list[tuple[bytes, bytes]] = []
        if first:
            # Says that the upstream has been listed once: what it has later is new.
            name = self.field("", PINNED)
            keep.append((name, self._sealed(where, name, Pin(upstream, "", (), "", at))))
        listed: dict[str, str] = {}
        for index, definition in enumerate(known):
            raw, marked = records[2 * index + 1 : 2 * index + 3]
            code = self._judge(
                upstream, definition, raw, listed, expected.get(definition.name), first=first
            )
            if raw is None and definition.name not in listed:
                name = self.field(definition.name, PINNED)
                pin = _pin(upstream, definition, at, expected.get(definition.name))
                keep.append((name, self._sealed(where, name, pin)))
            listed.setdefault(definition.name, definition.digest)
            if not code:
                continue
            found.findings.append((code, definition))
            mark = self.read(marked, upstream, definition.name, MARKED)
            if code == NEW or mark is None or mark.digests[:1] != (definition.digest,):
                found.fresh.add(definition.name)
            if code != NEW:
                name = self.field(definition.name, MARKED)
                marks.append((name, self._sealed(where, name, _pin(upstream, definition, at))))
        for definition in definitions[LISTING_LIMIT:][:1]:
            found.findings.append((UNPINNED, definition))
            found.fresh.add(definition.name)
        found.writes = [
            LabelWrite(where, mode, tuple(entries))
            for mode, entries in ((LabelWriteMode.KEEP, keep), (LabelWriteMode.REPLACE, marks))
            if entries
        ]
        return found

    def _judge(
        self,
        upstream: str,
        definition: ToolDefinition,
        raw: object,
        listed: dict[str, str],
        expected: str | None,
        *,
        first: bool,
    ) -> str:
        """Return the code of what is wrong with one tool of a listing, empty for nothing."""
        if listed.get(definition.name, definition.digest) != definition.digest:
            return CHANGED  # One listing that describes a tool twice, and differently.
        if expected == definition.digest:
            return ""
        if raw is None and expected is not None:
            return CHANGED
        if raw is None:
            return "" if first else NEW
        pin = self.read(raw, upstream, definition.name, PINNED)
        if pin is None:
            return ALTERED
        return "" if definition.digest in pin.digests else CHANGED

    def read(self, raw: object, upstream: str, tool: str, kind: bytes) -> Pin | None:
        """Return a stored pin, or None where there is none or its seal does not fit."""
        if not isinstance(raw, bytes):
            return None
        body = self._seal.opened(pin_set(upstream), self.field(tool, kind), raw)
        pin = None if body is None else _unpacked(body, is_mark=kind == MARKED)
        return pin if pin is not None and (pin.upstream, pin.tool) == (upstream, tool) else None

    def found(self, name: bytes, raw: bytes) -> Pin | None:
        """Return what a field of any upstream holds, for operators' tools; None if altered."""
        kind = name[FINGERPRINT:]
        claimed = _unpacked(raw[SEAL:], is_mark=kind == MARKED)
        return None if claimed is None else self.read(raw, claimed.upstream, claimed.tool, kind)

    def approved(self, pin: Pin | None, mark: Pin, at: float) -> LabelWrite:
        """Return the pin by which a changed definition is good from now on, beside the old ones."""
        before = pin.digests if pin is not None else ()
        digests = tuple(dict.fromkeys((*mark.digests, *before)))[:DIGEST_LIMIT]
        where, name = pin_set(mark.upstream), self.field(mark.tool, PINNED)
        body = Pin(mark.upstream, mark.tool, digests, mark.text, at)
        return LabelWrite(where, LabelWriteMode.REPLACE, ((name, self._sealed(where, name, body)),))

    def _sealed(self, where: LabelSet, name: bytes, pin: Pin) -> bytes:
        body = [pin.upstream, pin.tool, pin.digests, pin.text, pin.at]
        return self._seal.sealed(where, name, zlib.compress(json.dumps(body).encode(), 1))


def _pin(upstream: str, definition: ToolDefinition, at: float, expected: str | None = None) -> Pin:
    """Return the pin of a definition, or of the one that the policy expects in its place."""
    if expected not in {None, definition.digest}:
        return Pin(upstream, definition.name, (str(expected),), "", at)
    text = definition.text if len(definition.text) <= TEXT_LIMIT else ""
    return Pin(upstream, definition.name, (definition.digest,), text, at)


def _unpacked(body: bytes, *, is_mark: bool) -> Pin | None:
    try:
        fields: Json = json.loads(zlib.decompressobj().decompress(body, 16 * TEXT_LIMIT))
        upstream, tool, digests, text, at = fields
        return Pin(str(upstream), str(tool), tuple(digests), str(text), float(at), is_mark)
    except (zlib.error, ValueError, TypeError):
        return None


class ToolOffers:
    """Index of the upstreams that offer each tool name.

    A tool is its server's.  A name that two servers offer, or that one offers and another one
    answers to, does not say which of them is meant: it is ambiguous until the policy maps it under
    ``servers``.
    """

    def __init__(self, limit: int = OFFERS_LIMIT) -> None:
        self._first: dict[str, str] = {}
        self._limit = limit
        self.shared: set[str] | _Everything = set()
        """Names that more than one upstream has offered."""

    def note(self, upstream: str, names: Iterable[str]) -> bool:
        """Remember the names of a listing; where there is no room for more, all count as shared.

        Returns:
            whether any of them was not known to be offered by this server.
        """
        fresh = False
        for name in names:
            first = self._first.get(name)
            fresh = fresh or (first != upstream and name not in self.shared)
            if first is None:
                self._first[name] = upstream
            elif first != upstream:
                self._share(name)
        if len(self._first) > self._limit:
            self.shared = _Everything()
        return fresh

    def claim(self, upstream: str, name: str, origin: str = "") -> Claim:
        """Return by what right a call goes to a tool of a name at an upstream.

        Args:
            upstream: where it is called; empty where servers of its protocol list no tools.
            name: of the tool.
            origin: where the policy says that the tool is, empty where it does not.
        """
        first = self._first.get(name)
        if not upstream:
            return Claim.UNLISTED if name in self.shared else Claim.LISTED
        if name in self.shared or origin or first not in {None, upstream}:
            return Claim.CONTESTED
        return Claim.UNLISTED if first is None else Claim.LISTED

    def place(self, upstream: str, name: str, origin: str = "") -> str:
        """Return the server that a tool is called at, empty where nobody can say; as :meth:`claim`.

        A call in a model's answer names none: it goes to the one server that offers the tool.
        """
        return upstream or origin or ("" if name in self.shared else self._first.get(name, ""))

    def at(self, upstream: str) -> list[str]:
        """Return the names that a server offers, those that it may share included."""
        if not upstream:
            return []
        return [
            name for name, first in self._first.items() if first == upstream or name in self.shared
        ]

    def _share(self, name: str) -> None:
        if isinstance(self.shared, set):
            self.shared.add(name)


class _Everything:
    """Has every name in it."""

    def __contains__(self, name: object) -> bool:
        return True
