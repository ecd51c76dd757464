"""Values that a call saves: their labels, and the parts of its text.  Pure: no I/O.

The label of a saved value is the minimum over what it is made of and what its session had read
before.  INVARIANT (saving widens nothing): what vouches for a value keeps its principal and its end
when it is saved, and what held for a session alone, the user's word too, vouches for nothing then.
A label that belongs to the store, and so to everybody who reads it, is advisory at most unless an
operator imported it.

A hop says who saved a value where and what it was taken from; it decides nothing
(:mod:`guard.provenance.lineage`).

A text is its user's own only where it is a whole prompt of the authenticated channel, word for
word; such a text keeps its label whatever the session has read.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, filterfalse, islice, permutations
from typing import TYPE_CHECKING, Final

from guard.core.bounded_cache import bounded_cache
from guard.core.calls import ClassifiedCall, Target, TracedCall, saved_document, without_members
from guard.core.json_values import parts_of, strings_in
from guard.core.labels import (
    ActionRung,
    Channel,
    Context,
    LabelRecord,
    LabelSet,
    LabelWrite,
    LabelWriteMode,
    Rung,
    SavedText,
)
from guard.core.model import LISTED, READING, Integrity, Json, Role
from guard.provenance.label_sets import ATTESTED, HOPS, ITEM, TAINTED, WRITTEN, LabelSets
from guard.provenance.ladder import (
    NAMED_DOCUMENT,
    OF_A_SERVICE,
    OWN_MEMORY,
    attest_values,
    lasting,
    lasting_services,
    name_said,
    refusals,
)
from guard.provenance.lineage import HOP_VALUES, Hop, Recalls, place_of, write_hop
from guard.provenance.prompts import (
    SENTENCE_EDGE,
    SENTENCE_END,
    mentioned_value,
    said_value,
    words_value,
)
from guard.values.finding import (
    HANDLE,
    LEAF_LIMIT,
    SAID,
    find_values,
    keys_of,
    leaf_value,
    look_alikes,
)
from guard.values.statements import writes_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from guard.core.mappings import ToolMapping
    from guard.provenance.seal import Seal

TELLING: Final = 16
"""Characters of the shortest whole text of which it can be said where it came from."""
_WORD: Final = re.compile(r"[^\W_]+")
_MAILBOX: Final = re.compile(r"[a-z0-9._-]+@[a-z0-9-]+(?:\.[a-z0-9-]+)+", re.IGNORECASE | re.ASCII)
"""A mailbox in letters that no coding of services changes."""
_LETTERS: Final = "[a-z]+(?:-[a-z]+)*"
_LETTERS_MAILBOX: Final = re.compile(
    rf"[a-z]+(?:[_-][a-z]+)*(?:\.[a-z]+)?@{_LETTERS}(?:\.{_LETTERS})+", re.IGNORECASE | re.ASCII
)
"""One without a digit, and one dot at most before its sign: it has no other value in it."""


def _said(texts: Sequence[str]) -> str:
    """Return the value of the sentences of some texts, empty where one cannot be told apart.

    A text that is not a sentence (a key, a title) must be made of words of the others.
    """
    parts = [
        part for text in texts for part in SENTENCE_END.split(text) if part.strip(SENTENCE_EDGE)
    ]
    value = said_value(*(part for part in parts if said_value(part)))
    words = set(_WORD.findall(value.removeprefix(SAID)))
    rest = [part for part in parts if not said_value(part)]
    told = all(words.issuperset(_WORD.findall(part.casefold())) for part in rest)
    plain = all(part.isascii() and part.isprintable() for part in rest)
    return value if told and plain else ""


@dataclass(slots=True)
class SavedParts:
    """Parts of a text that is about to be saved."""

    plain: dict[str, None] = field(default_factory=dict)
    """Values that stand in it."""
    further: dict[str, None] = field(default_factory=dict)
    """Values that are disguised in it, and the text as a whole."""
    said: str = ""
    """The value of its sentences, where each can be told apart."""
    overflow: bool = False
    """True if a bound cut values off."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> SavedParts:
        """Return the parts of some texts that are saved together."""
        parts = cls(said=_said(texts))
        for text in texts:
            found = find_values(text)
            parts.plain.update(found.plain)
            parts.further.update(found.disguised)
            if len(text.strip()) >= TELLING and (whole := leaf_value(text)) is not None:
                parts.further[whole] = None
            parts.overflow |= found.overflow
        return parts

    def label(self, context: Context, *, unsure: bool) -> SavedText:
        """Return the label of the text.

        Args:
            context: what is known of the values.
            unsure: whether a value without a label may be anybody's.
        """
        if self.said and attest_values((self.said,), (), context).rung is Rung.PROMPTED:
            return SavedText(Integrity.TRUSTED, prompted=True, attested=self._attested(context))
        lowest = Integrity.ADVISORY
        origins: set[bytes] = set()
        for value in (*self.plain, *self.further):
            label, origin = label_of(value, context)
            if label is Integrity.UNTRUSTED:
                lowest = label
                if origin is not None and origin.origin:
                    origins.add(origin.origin)
        unsure = unsure and bool(self.plain or self.further)
        if unsure or context.read_untrusted is not None:
            lowest = Integrity.UNTRUSTED
        return SavedText(lowest, frozenset(origins), attested=self._attested(context))

    def _attested(self, context: Context) -> frozenset[str]:
        """Return the plain values that an attestation of this session vouches for, or its user
        mentioned: to keep one sends nothing there.
        """
        found = set()
        for value in self.plain:
            known = context.values.get(value)
            keys = [value]
            if known is None or not refusals(known, context):
                keys.append(mentioned_value(value))
            if any(attest_values((key,), (), context).rung <= Rung.REMEMBERED for key in keys):
                found.add(value)
        return frozenset(found)


def label_of(value: str, context: Context) -> tuple[Integrity, LabelRecord | None]:
    """Return the label a value is saved with, and the record that decided it if one did."""
    attested = lasting(value, context)
    if attested.rung <= Rung.REMEMBERED:
        return Integrity.AUTHENTICATED, attested.record
    if attested.rung >= Rung.TAINTED:
        return Integrity.UNTRUSTED, attested.record
    if context.read_untrusted is not None and not _is_said(value, context):
        return Integrity.UNTRUSTED, context.read_untrusted
    return Integrity.ADVISORY, None


def _is_said(value: str, context: Context) -> bool:
    """Return whether a short text is made of words that the user said in this session."""
    return attest_values((words_value(value),), (), context).rung is Rung.PROMPTED


@dataclass(slots=True)
class Save:
    """One call that saves into a declared store."""

    seal: Seal
    sets: LabelSets
    classified: ClassifiedCall
    item: str
    """Value of the item that it saves, empty where it names none."""
    context: Context
    recalls: Recalls
    """Earlier recalls of its session."""
    unsure: bool = False
    """True if a value without a label may be anybody's: labels of its principal are missing."""
    _place: bytes = b""
    _principal: bytes = b""

    def __post_init__(self) -> None:
        self._place = place_of(self.seal, self.classified.saves_to, self.item)
        self._principal = self.seal.principal(self.classified.call.identity)

    def writes(self, index: int) -> Iterator[LabelWrite]:
        """Yield the labels of what is saved, and a hop of each.

        Args:
            index: of the call in its session or recorded run.
        """
        call, context, seal = self.classified.call, self.context, self.seal
        plain, disguised, overflow = saved_values(saved_document(self.classified))
        here = LabelRecord(
            Integrity.ADVISORY, Channel.SAVED, index, call.at, context.session, call.tool
        )
        lowest = Integrity.AUTHENTICATED if plain and not overflow else Integrity.ADVISORY
        for count, value in enumerate((*plain, *disguised)):
            label, origin = label_of(value, context)
            if value not in plain and label is not Integrity.UNTRUSTED:
                continue
            if value.startswith("any:") and label is not Integrity.UNTRUSTED:
                continue
            if self.unsure and label is Integrity.ADVISORY:
                # Left without a record, so that whoever recalls it has read it as untrusted.
                lowest = Integrity.UNTRUSTED
                continue
            lowest = min(lowest, label)
            saved = record = replace(here, label=label)
            if label is Integrity.UNTRUSTED and origin is not None and origin.sealed:
                # The origin stays with the value, whoever saves it again under another name.
                record = replace(origin, label=label, channel=Channel.SAVED)
            if label is Integrity.AUTHENTICATED and origin is not None:
                record = replace(here, label=Integrity.ADVISORY)
                yield from self._own_label(value, origin)
            yield label_write(seal, self.sets, call.identity.tenant, value, record)
            if count < HOP_VALUES and plain.get(value, True):
                yield self._hop_of_value(seal.fingerprint(value), saved, origin)
        if self.item:
            if context.read_untrusted is not None and lowest is not Integrity.AUTHENTICATED:
                lowest = Integrity.UNTRUSTED
            mark = seal.fingerprint(self.item)
            area = self.sets.memory(call.identity.tenant, mark)
            saved = replace(here, label=min(lowest, Integrity.ADVISORY))
            entry = seal.write(area, mark + ITEM, saved)
            yield LabelWrite(area, LabelWriteMode.REPLACE, (entry,))
            yield self._hop_of_item(mark, saved)

    def _own_label(self, value: str, attested: LabelRecord) -> Iterator[LabelWrite]:
        """Yield the label of a value that this principal may send to, and no longer than it was.

        What an operator imported, and what was saved before, is on record as it is.  What the user
        named holds in that session, where the prompt is on record itself, unless it has an end of
        its own: he wants it remembered.
        """
        call = self.classified.call
        if attested.channel in {Channel.IMPORTED, Channel.SAVED} or holds_in_session(attested):
            return
        until = self.sets.until(attested.at)
        if attested.until:
            until = min(until, attested.until)
        mark = self.seal.fingerprint(value)
        area = self.sets.own(call.identity, mark)
        record = replace(
            attested,
            label=Integrity.AUTHENTICATED,
            channel=Channel.SAVED,
            principal=self._principal,
            until=until,
            services=lasting_services(attested) if value.startswith(OF_A_SERVICE) else (),
        )
        entry = self.seal.write(area, mark + ATTESTED, record)
        yield LabelWrite(area, LabelWriteMode.REPLACE, (entry,))

    def _hop_of_value(
        self, mark: bytes, saved: LabelRecord, source: LabelRecord | None
    ) -> LabelWrite:
        """Return the hop of a value, whose parent is the newest recall that brought it."""
        recalled = self.recalls.of(mark)
        if recalled is not None:
            return self._hop(mark, saved, source, recalled.place)
        unknown = not self.recalls.whole or (self.context.remembers and not self.recalls.held)
        broken = source is not None and not source.sealed
        return self._hop(mark, saved, None if broken else source, lost=unknown or broken)

    def _hop_of_item(self, mark: bytes, saved: LabelRecord) -> LabelWrite:
        """Return the hop of an item: what tainted it is the first untrusted text of its session."""
        read = self.context.read_untrusted if saved.label is Integrity.UNTRUSTED else None
        if read is None or not read.sealed:
            return self._hop(mark, saved, None, lost=read is not None)
        calls = [one for one in self.recalls.held if one.record.call == read.call]
        return self._hop(mark, saved, read, calls[0].place if calls else b"")

    def _hop(
        self,
        mark: bytes,
        saved: LabelRecord,
        source: LabelRecord | None,
        parent: bytes = b"",
        *,
        lost: bool = False,
    ) -> LabelWrite:
        store, seal = self.classified.saves_to, self.seal
        hop = Hop(saved, self._principal, self._place, store, parent, lost, source)
        area = self.sets.memory(self.classified.call.identity.tenant, mark)
        return LabelWrite(area, LabelWriteMode.APPEND, (write_hop(seal, area, mark + HOPS, hop),))


def holds_in_session(record: LabelRecord) -> bool:
    """Return whether a record is of a prompt, and of nothing that it wants remembered."""
    return record.channel is Channel.PROMPT and not record.until


def label_write(
    seal: Seal, areas: LabelSets, tenant: str, value: str, record: LabelRecord
) -> LabelWrite:
    """Return the label of one value in the memories of a tenant."""
    mark = seal.fingerprint(value)
    area = areas.memory(tenant, mark)
    tainted = record.label is Integrity.UNTRUSTED
    field = mark + (TAINTED if tainted else ATTESTED)
    mode = LabelWriteMode.KEEP if tainted else LabelWriteMode.RAISE
    return LabelWrite(area, mode, (seal.write(area, field, record),))


def item_value(mapping: ToolMapping, store: str, arguments: Json) -> str:
    """Return the value that names an item of a memory, empty where the call names none."""
    if mapping.item is None:
        return ""
    for _, value in mapping.item.find(arguments):
        if isinstance(value, str | int):
            return f"item:{store}:{value}"
    return ""


def said_handles(plain: Iterable[str]) -> list[str]:
    """Return the values under which the user may have said the short texts among some values."""
    return [words_value(value) for value in plain if value.startswith(HANDLE)]


def saved_values(
    arguments: Mapping[str, Json],
) -> tuple[dict[str, bool], dict[str, None], bool]:
    """Return the values in what is saved, as they stand and disguised, and whether some lack.

    Of those as they stand it says which leave a hop: a text that is a value as a whole, and has
    others in it, goes the way that they go.
    """
    return _values_in(_texts_of(arguments))


def _values_in(
    texts: Iterable[str], *, turned: bool = True
) -> tuple[dict[str, bool], dict[str, None], bool]:
    """Return the values in some texts, as :func:`saved_values`.

    Args:
        texts: of what is saved.
        turned: whether a plain mailbox is read backwards and rotated as well, which people and
            models do, and no service.
    """
    plain: dict[str, bool] = {}
    disguised: dict[str, None] = {}
    overflow = False
    for text in texts:
        found = find_values(text, disguised=turned or _MAILBOX.fullmatch(text) is None)
        plain.update(dict.fromkeys(found.plain, True))
        disguised.update(found.disguised)
        overflow = overflow or found.overflow
        if (whole := leaf_value(text)) is not None:
            plain[whole] = plain.get(whole, False) or not found.plain
            disguised.update(dict.fromkeys(look_alikes(whole)))
    return plain, disguised, overflow


def _is_member(name: str) -> bool:
    """Return whether a name is a member's, and no id that stands in a member's place."""
    return name.isidentifier() and not any(map(str.isdigit, name))


def _texts_of(
    arguments: Mapping[str, Json],
    left_out: AbstractSet[str] = frozenset(),
    is_member: Callable[[str], bool] = str.isidentifier,
) -> list[str]:
    """Return the strings and numbers in arguments, and the names in them that somebody chose."""
    left = {name: value for name, value in arguments.items() if name not in left_out}
    texts = [*_chosen(left, is_member)]
    for value in left.values():
        # A string is the common case, and needs no walk.
        for item in (value,) if isinstance(value, str) else parts_of(value):
            if isinstance(item, str):
                texts.append(item)
            elif isinstance(item, dict):
                texts += _chosen(item, is_member)
            elif isinstance(item, int | float) and not isinstance(item, bool):
                texts.append(str(item))
    return texts


def _chosen(names: Iterable[str], is_member: Callable[[str], bool]) -> Iterator[str]:
    """Return the names that are not those of members; a cheap test leaves the usual ones out."""
    return filterfalse(is_member, filterfalse(_PLAIN_NAME.fullmatch, names))


_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]+")
"""Usual form of a member's name, which every test for one takes."""
WRITTEN_LIMIT: Final = 2000
"""Values of one call that are noted as written."""


def written_values(classified: ClassifiedCall) -> tuple[str, ...]:
    """Return the values that a call writes into some service's records.  A look-up writes nothing.

    The text of a message stays with its receivers, unless a declared store keeps it.
    """
    call, mapping = classified.call, classified.mapping
    arguments: Mapping[str, Json] = call.arguments
    if classified.role in READING and not any(map(writes_values, strings_in(dict(arguments)))):
        return ()
    left_out: AbstractSet[str] = frozenset()
    if classified.role in _MESSAGES and mapping is not None and not classified.saves_to:
        if mapping.body_members is None:
            body = {path for query in mapping.body for path, _ in query.find(arguments)}
            arguments = without_members(arguments, body)
        else:
            left_out = mapping.body_members
    values: dict[str, None] = {}
    disguised: dict[str, None] = {}
    for text in _texts_of(arguments, left_out, _is_member):
        stand, hidden = _written_in(text)
        values |= stand
        disguised |= hidden
    values |= disguised
    if classified.role in _RECORDING:
        values |= dict.fromkeys(_joined_mailboxes(arguments))
    for target in classified.targets if values else ():
        if target.status in LISTED:
            for known in (*keys_of(target.destination), HANDLE + target.destination.canonical):
                values.pop(known, None)
    return tuple(islice(values, WRITTEN_LIMIT))


def _unpacked(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts, and the texts of the JSON documents among them: a service reads these too."""
    for text in texts:
        yield text
        if text.lstrip()[:1] in _JSON_SIGNS:
            with suppress(ValueError, RecursionError):
                yield from _texts_of({"text": json.loads(text)}, is_member=_is_member)


def ids_given(traced: TracedCall, content: Json) -> Iterator[str]:
    """Yield the handles of ids in the result of a write: the service made them for its entries.

    An id that the call names is of an entry that existed before.

    Args:
        traced: the call.
        content: of its result.
    """
    if not traced.written or traced.classified.role not in _RECORDING:
        return
    texts = _unpacked(_texts_of({"result": content}))
    named = frozenset(traced.written)
    for text in islice(texts, GIVEN_LIMIT):
        value = leaf_value(text) if _ID.fullmatch(text) else None
        if value is not None and value not in named:
            yield value


def values_vouching(written: Collection[str]) -> Iterator[str]:
    """Yield those of some written values that say whether they are vouched for.

    A text that is a mailbox is a handle as well, and stands with the mailbox or falls with it.
    """
    known = frozenset(written)
    for value in written:
        if not (value.startswith(HANDLE) and f"mail:{value[len(HANDLE) :]}" in known):
            yield value


@bounded_cache(256)
def _written_in(text: str) -> tuple[dict[str, None], dict[str, None]]:
    """Return the values in a text as they stand and disguised, without those that only taint."""
    if len(text) <= LEAF_LIMIT and _LETTERS_MAILBOX.fullmatch(text) is not None:
        whole = text.lower()
        return {f"mail:{whole}": None, f"{HANDLE}{whole}": None}, {}
    plain, disguised, _ = _values_in(_unpacked((text,)), turned=False)
    found: tuple[dict[str, None], dict[str, None]] = {}, {}
    for kept, values in zip(found, (plain.keys(), disguised.keys()), strict=True):
        for value in values:
            if not value.startswith("any:"):
                kept[value] = None
    return found


GIVEN_LIMIT: Final = 256
"""Texts in the result of a write that are searched for ids."""
_ID: Final = re.compile(r"(?=[^\d]*\d)[\w.:@/+-]{2,128}", re.ASCII)
"""A text with a digit and without a space."""
_JSON_SIGNS: Final = frozenset("{[")
_ADDRESS: Final = 254
"""Characters of the longest address."""
PIECES: Final = 24
"""Short texts of one call of which a service could make a mailbox."""
_PIECE: Final = re.compile(r"[\w.@+-]{1,64}", re.ASCII)


def _joined_mailboxes(arguments: Mapping[str, Json]) -> Iterator[str]:
    """Yield the mailboxes that a service could make of two texts, or of a list of texts.

    A name and a domain in two fields, or an address cut in two, become one record.
    """
    texts = _texts_of(arguments)
    pieces = [text for text in texts if _PIECE.fullmatch(text)][:PIECES]
    if len(pieces) < 2 or not any("." in one for one in pieces):  # noqa: PLR2004
        return
    joined = [f"{a}{sign}{b}" for a, b in permutations(pieces, 2) for sign in ("", "@")]
    lists = (one[:_ADDRESS] for one in parts_of(dict(arguments)) if isinstance(one, list))
    joined += ["".join(map(str, items)) for items in lists]
    for text in joined:
        if text.count("@") == 1 and _MAILBOX.fullmatch(text) is not None:
            yield f"mail:{text.lower()}"


def written_labels(
    seal: Seal, sets: LabelSets, traced: TracedCall, content: Json = None
) -> Iterator[LabelWrite]:
    """Yield the records of what a call has written and nobody vouches for.

    INVARIANT (no agent is its own witness): read back from a directory or an own record, of
    whatever store and in whatever session of the tenant, it is not evidence of anything.  The
    record of a handle that was made as the user asked (:func:`_makes_named`) is advisory, and so
    is that of a value that a named document had supplied before.

    Args:
        seal: the deployment's key.
        sets: where records lie.
        traced: the call, as it was judged.
        content: of its result.
    """
    context, call = traced.context, traced.call
    if context is None or not traced.written:
        return
    made: dict[tuple[LabelSet, LabelWriteMode], list[tuple[bytes, bytes]]] = {}
    record = LabelRecord(
        Integrity.UNTRUSTED, Channel.SAVED, traced.index, call.at, context.session, call.tool
    )
    vouched: set[str] = set()
    sends = traced.classified.role in _MESSAGES
    # Beside a mailbox that nobody named, a handle may be made for it.
    alone = sends and all(
        one.destination.kind == "handle" or _is_named(one) for one in _receivers(traced)
    )
    # A receiver that the user has named is none that the call makes.
    named = _values_on(traced, Rung.PROMPTED) if alone else ()
    reached = _values_on(traced, Rung.REMEMBERED) if alone else _supplied(traced)
    makes = _makes_named(traced, context)
    for value in chain(traced.written, ids_given(traced, content)):
        # The mailbox comes before the same text as a handle.
        kind, _, text = value.partition(":")
        if text in vouched and kind == _AS_HANDLE:
            continue
        if value in named or _stands(value, context, sends=sends):
            vouched.add(text if kind == "mail" else "")
            continue
        mark = seal.fingerprint(value)
        area = sets.written(call.identity, mark)
        # Whatever writes it otherwise, before or later, stands above a making by request.
        if value in reached or (makes and name_said(value, context) is not None):
            by, mode = replace(record, label=Integrity.ADVISORY), LabelWriteMode.KEEP
        else:
            by, mode = record, LabelWriteMode.REPLACE
        made.setdefault((area, mode), []).append(seal.write(area, mark + WRITTEN, by))
    for (area, mode), entries in made.items():
        yield LabelWrite(area, mode, tuple(entries))


def _stands(value: str, context: Context, *, sends: bool) -> bool:
    """Return whether somebody else than the agent vouches for a value that a call writes."""
    attested = lasting(value, context)
    # A receiver that a request named may be sent to; among contacts he is the agent's writing.
    asked = attested.record is not None and holds_in_session(attested.record)
    # An earlier save vouches for its principal alone, and taint was not looked up here.
    holds = attested.rung <= Rung.REMEMBERED and attested.why != OWN_MEMORY
    return holds and (not asked or sends)


def _values_on(traced: TracedCall, rung: Rung) -> frozenset[str]:
    """Return the values of a call that stand on a rung or above it."""
    return frozenset(
        key
        for one in _receivers(traced)
        if one.attestation is not None and Rung.GRANTED < one.attestation.rung <= rung
        for key in keys_of(one.destination)
    )


def _supplied(traced: TracedCall) -> frozenset[str]:
    """Return the values that a named document supplies and that are the same everywhere.

    A handle beside them may be made for another receiver.
    """
    return frozenset(
        key
        for one in _receivers(traced)
        if one.attestation is not None and one.attestation.why == NAMED_DOCUMENT
        for key in keys_of(one.destination)
        if not key.startswith(HANDLE)
    )


def _receivers(traced: TracedCall) -> tuple[Target, ...]:
    """Return the receivers and guarded values of a call."""
    return (*traced.targets, *traced.guarded)


def _is_named(target: Target) -> bool:
    return target.attestation is not None and target.attestation.rung is Rung.PROMPTED


def _makes_named(traced: TracedCall, context: Context) -> bool:
    """Return whether a call may make a handle that the user has named.

    INVARIANT (whose handle it is): the user named each receiver and guarded value of the call, or a
    person approved exactly this call, and the action is one that a prompt requests.
    """
    action = traced.action
    return (
        context.closed
        and traced.classified.role is Role.SEND
        and bool(traced.targets)
        and (context.granted or all(map(_is_named, _receivers(traced))))
        and (action is None or action.rung <= ActionRung.REQUESTED)
    )


_MESSAGES: Final = frozenset({Role.SEND, Role.DRAFT})
_RECORDING: Final = frozenset({Role.SAVE, Role.OTHER})
_AS_HANDLE: Final = HANDLE.removesuffix(":")
