"""What one tool result says, as label records to store.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from guard.content.shingles import passages_kept
from guard.core.labels import Channel, LabelRecord, LabelWrite, LabelWriteMode
from guard.core.model import DestinationStatus, Integrity, Role
from guard.destinations.amounts import find_numbers, number_value
from guard.destinations.canonical import read_destinations
from guard.destinations.field_values import whole_values
from guard.destinations.values import find_values, keys_of, leaf_value, message_value
from guard.provenance.label_sets import ATTESTED, READ, REPLY, LabelSets
from guard.provenance.message_titles import title_value
from guard.provenance.named_places import links, own_addresses
from guard.provenance.private_shingles import private_shingle_writes
from guard.provenance.prompt_text import names_given
from guard.provenance.result_documents import messages_document, roots_of
from guard.provenance.result_fields import leaves_of, vouched
from guard.provenance.sources import marks_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import ToolResult
    from guard.core.labels import LabelSet
    from guard.core.model import Json
    from guard.core.policy import Policy
    from guard.core.tool_mapping import MessageFields, ToolMapping
    from guard.provenance.result_documents import Root
    from guard.provenance.result_fields import Leaf
    from guard.provenance.seal import Seal

RESULT_VALUES: Final = 2000
"""Values of one result that are labelled."""
RESULT_TEXT: Final = 256 * 1024
"""Characters of one result that are looked through."""
MESSAGE_LIMIT: Final = 200
NAME_LIMIT: Final = 8
"""Messages of one result, and names of one message, that a user may mean."""
REMEMBERING: Final = frozenset({Role.RECALL, Role.LIST, Role.RETRIEVE})
WRITING: Final = frozenset({Role.SAVE, Role.DRAFT, Role.SEND})


@dataclass(slots=True)
class ResultIntake:
    """Reads one result, once."""

    seal: Seal
    areas: LabelSets
    policy: Policy
    result: ToolResult
    session: bytes = b""
    is_read: bool = True  # Whether the session has now read it.
    _untrusted: dict[str, bytes] = field(default_factory=dict)
    """Mark of the source by value; the first that named it."""
    _attested: dict[str, Integrity] = field(default_factory=dict)
    _written: dict[str, None] = field(default_factory=dict)
    """Untrusted values in clear text."""
    _private: dict[str, None] = field(default_factory=dict)
    _overflow: bool = False
    _text: int = 0
    _traces_numbers: bool = False
    _sources: frozenset[bytes] = frozenset()

    def __post_init__(self) -> None:
        self._traces_numbers = any(mapping.guarded for mapping in self.policy.tools)

    def writes(self) -> tuple[list[LabelWrite], bool]:
        """Return the records to store, and whether a bound cut values off."""
        call = self.result.call.call
        mapping = self.result.call.classified.mapping
        default = mapping.source if mapping is not None else Integrity.UNTRUSTED
        roots = roots_of(self.result.content)
        self._sources = marks_of(self.result)
        only = next(iter(self._sources)) if len(self._sources) == 1 else b""
        private = self.policy.traces_private and mapping is not None and mapping.private
        read_untrusted = False
        for root in roots:
            for leaf in map(vouched, leaves_of(root, mapping, default, only)):
                if not self._room_for(leaf.text):
                    break
                self._take(leaf)
                if private:
                    self._private.update(dict.fromkeys(passages_kept(leaf.text)))
                read_untrusted |= leaf.label is Integrity.UNTRUSTED and bool(leaf.text.strip())
        self._forget_echoes()
        writes = [*self._taints(mapping), *self._attestations()]
        if mapping is not None and mapping.messages is not None:
            writes.extend(self._messages(roots, mapping.messages))
        if mapping is not None:
            writes.extend(self._named_places(mapping, roots))
        if self._private:
            record = self._record(Integrity.AUTHENTICATED, Channel.FIELD)
            writes.extend(
                private_shingle_writes(self.seal, self.areas, call.identity, record, self._private)
            )
        if read_untrusted and self.is_read and self._reads(mapping):
            writes.append(self._mark_read())
        return writes, self._overflow

    def found(self) -> tuple[str, ...]:
        """Return every value of it, once its records have been made."""
        return (*self._untrusted, *self._attested)

    def _room_for(self, text: str) -> bool:
        self._text += len(text)
        full = self._text > RESULT_TEXT + len(text) or len(self._untrusted) > RESULT_VALUES
        self._overflow |= full
        return not full

    def _taint(self, values: Iterable[str], origin: bytes) -> None:
        for value in values:
            self._untrusted.setdefault(value, origin)

    def _take(self, leaf: Leaf) -> None:
        text, label, whole = leaf.text, leaf.label, leaf.whole
        if label is Integrity.ADVISORY:
            return
        handle = leaf_value(text) if whole else None
        if self._traces_numbers:
            self._take_numbers(leaf, whole=handle is not None)
        if label is Integrity.AUTHENTICATED and whole:
            self._take_field(leaf, handle)
            return
        if label is Integrity.UNTRUSTED:
            found = find_values(text)
            self._overflow = self._overflow or found.overflow
            self._taint(found.plain, leaf.origin)
            self._taint(found.disguised, leaf.origin)
            self._written.update(found.plain)
            if handle is not None:
                self._taint((handle,), leaf.origin)
            return
        for destination in read_destinations(text) if whole else ():
            self._attest(keys_of(destination)[:1], label)
        self._attest(tuple(find_values(text, disguised=False).plain), label)
        if handle is not None:
            self._attest((handle,), label)

    def _take_numbers(self, leaf: Leaf, *, whole: bool) -> None:
        """Take the numbers of a text; a field vouches for the number that it is."""
        number = number_value(leaf.text) if whole else None
        if leaf.label is Integrity.UNTRUSTED:
            self._taint(find_numbers(leaf.text) if number is None else (number,), leaf.origin)
        elif number is not None:
            self._attest((number,), leaf.label)

    def _take_field(self, leaf: Leaf, handle: str | None) -> None:
        """Take a field that the service fills in: it vouches for a value that is all of it.

        A name that somebody chose can be as long as a letter; what is written inside one is text
        like any other.
        """
        values = whole_values(leaf.text)
        for value in values:
            self._attest((value,), leaf.label)
        if handle is not None:
            self._attest((handle,), leaf.label)
        if not values:
            found = find_values(leaf.text)
            inside = {**found.plain, **found.disguised}
            inside.pop(handle or "", None)
            self._overflow = self._overflow or found.overflow
            self._taint(inside, leaf.origin)

    def _attest(self, values: tuple[str, ...], label: Integrity) -> None:
        for value in values:
            if not value.startswith("any:"):
                self._attested[value] = max(label, self._attested.get(value, label))

    def _forget_echoes(self) -> None:
        """Drop what the call itself said: an answer that repeats it is no source of it."""
        echoes: set[str] = set()
        for leaf in leaves_of(dict(self.result.call.call.arguments), None, Integrity.UNTRUSTED):
            if not self._untrusted:
                return
            found = find_values(leaf.text)
            echoes.update(found.plain, found.disguised)
            handle = leaf_value(leaf.text)
            if handle is not None:
                echoes.add(handle)
        for value in echoes & self._untrusted.keys():
            del self._untrusted[value]

    def _record(self, label: Integrity, channel: Channel) -> LabelRecord:
        call = self.result.call
        return LabelRecord(label, channel, call.index, self.result.at, self.session, call.call.tool)

    def _taints(self, mapping: ToolMapping | None) -> list[LabelWrite]:
        identity = self.result.call.call.identity
        from_memory = mapping is not None and bool(mapping.store) and mapping.role in REMEMBERING
        channel = Channel.MEMORY if from_memory else Channel.RESULT
        record = self._record(Integrity.UNTRUSTED, channel)
        epoch = self.areas.epoch(self.result.at)
        grouped: dict[LabelSet, tuple[LabelSet, list[tuple[bytes, bytes]]]] = {}
        for count, (value, origin) in enumerate(self._untrusted.items()):
            if count >= RESULT_VALUES:
                self._overflow = True
                break
            mark = self.seal.fingerprint(value)
            area = self.areas.taint(identity, mark, epoch)
            memory = self.areas.memory(identity.tenant, mark)
            _, entries = grouped.setdefault(area, (memory, []))
            by = replace(record, origin=origin) if origin else record
            entries.append(self.seal.write(area, mark, by))
        return [
            # What a memory answers keeps the label it was saved with, if it has one.
            LabelWrite(
                area, LabelWriteMode.KEEP, tuple(entries), unless=memory if from_memory else None
            )
            for area, (memory, entries) in grouped.items()
        ]

    def _attestations(self) -> list[LabelWrite]:
        area = self.areas.session(self.result.call.call.identity)
        entries = [
            self.seal.write(
                area,
                self.seal.fingerprint(value) + ATTESTED,
                self._record(label, Channel.FIELD),
            )
            for value, label in list(self._attested.items())[:RESULT_VALUES]
        ]
        return [LabelWrite(area, LabelWriteMode.RAISE, tuple(entries))] if entries else []

    def _reads(self, mapping: ToolMapping | None) -> bool:
        """Return whether the result is something the session has now read, and nobody vouches."""
        call = self.result.call
        if call.classified.role in WRITING:
            return bool(self._untrusted)
        if mapping is None or not mapping.store or call.memory_label is None:
            return True
        return call.memory_label is Integrity.UNTRUSTED

    def _mark_read(self) -> LabelWrite:
        area = self.areas.session(self.result.call.call.identity)
        record = self._record(Integrity.UNTRUSTED, Channel.READ)
        if len(self._sources) == 1:
            record = replace(record, origin=next(iter(self._sources)))
        return LabelWrite(area, LabelWriteMode.KEEP, (self.seal.write(area, READ, record),))

    def _named_places(self, mapping: ToolMapping, roots: list[Root]) -> list[LabelWrite]:
        """Return what stands on a page, or in messages, that the user may have named."""
        area = self.areas.session(self.result.call.call.identity)
        noted = (self.seal, area, self._record(Integrity.AUTHENTICATED, Channel.FIELD), self.result)
        entries: list[tuple[bytes, bytes]] = []
        if mapping.named_by is not None:
            entries += own_addresses(*noted, mapping.named_by, self._written)
        if mapping.links is not None:
            entries += links(*noted, roots, mapping.links)
        return [LabelWrite(area, LabelWriteMode.REPLACE, tuple(entries))] if entries else []

    def _messages(self, roots: list[Root], where: MessageFields) -> list[LabelWrite]:
        """Return who sent each message, with the names that a user may call it by."""
        area = self.areas.session(self.result.call.call.identity)
        record = self._record(Integrity.AUTHENTICATED, Channel.FIELD)
        names: dict[str, list[str]] = {}
        inside: set[str] = set()
        for root in roots:
            document = messages_document(root, where)
            if isinstance(document, str):
                continue
            for _, message in list(where.each.find(document))[:MESSAGE_LIMIT]:
                self._message(message, where, names, inside)
        entries = [
            self.seal.write(area, self.seal.fingerprint(value) + REPLY, record, self._marks(known))
            for value, known in names.items()
        ]
        entries += [
            self.seal.write(area, self.seal.fingerprint(value) + ATTESTED, record)
            for value in inside
        ]
        return [LabelWrite(area, LabelWriteMode.REPLACE, tuple(entries))] if entries else []

    def _marks(self, names: list[str]) -> list[bytes]:
        return [self.seal.fingerprint(name) for name in dict.fromkeys(names)][:NAME_LIMIT]

    def _message(
        self, message: Json, where: MessageFields, names: dict[str, list[str]], inside: set[str]
    ) -> None:
        """Note what a user may call one message, under its sender's address and under its id."""
        ids = [message_value(str(value)) for _, value in where.id.find(message)]
        senders = [value for _, value in where.sender.find(message) if isinstance(value, str)]
        sent_by = [d for sender in senders for d in read_destinations(sender)]
        addresses = [key for destination in sent_by for key in keys_of(destination)[:1]]
        titles = [value for query in where.names for _, value in query.find(message)]
        called = [text.partition("<")[0] for text in (*senders, *titles) if isinstance(text, str)]
        # One word is too little to name a message by: an attacker chooses both of these texts.
        known = [name for text in called for name in names_given(text)[-1:] if " " in name]
        for value in (*addresses, *ids, *(title_value(name) for name in known)):
            names.setdefault(value, []).extend((*addresses, *known))
        if sent_by and all(
            self.policy.standing(d) in {DestinationStatus.INTERNAL, DestinationStatus.ALLOWED}
            for d in sent_by
        ):
            inside.update(ids)
