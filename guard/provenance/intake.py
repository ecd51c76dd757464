"""Intake of one tool result as label records to store.  Pure: no I/O.

What stands in a place that the user named (a page, or the messages of a channel or person) counts
like the sender of a message that the user named: for this session only.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.json_values import strings_in
from guard.core.labels import Channel, LabelRecord, LabelSet, LabelWrite, LabelWriteMode
from guard.core.mappings import LinkFields, MessageFields, PathQuery, ToolMapping, bare_mapping
from guard.core.model import (
    LISTED,
    READING,
    Destination,
    Identity,
    Integrity,
    Json,
    Role,
    ToolCall,
)
from guard.core.policy import Policy, PolicySource
from guard.core.work import WorkBudget, within
from guard.provenance.label_sets import (
    ATTESTED,
    EXCERPT,
    KNOWN_AS,
    READ,
    RECALLED,
    RECALLS,
    REPLY,
    UNIT_SIZE,
    LabelSets,
    bucket_of,
    label_sets,
)
from guard.provenance.ladder import OF_A_SERVICE, service_marks, services_of
from guard.provenance.lineage import ID, SHORT, Recalled, place_of, write_recall
from guard.provenance.named_documents import delegated_value, names_of, site_links, supplied_by
from guard.provenance.prompts import mentioned_value, words_value
from guard.provenance.result_documents import (
    Entry,
    Leaf,
    Root,
    document_of,
    items_in,
    leaves_of,
    marks_of,
    messages_in,
    roots_of,
    source_mark,
    vouched,
    whole_text,
)
from guard.provenance.saved_values import item_value
from guard.provenance.seal import UNKNOWN_WRITERS, Seal
from guard.values.canonical import REST_SIGN, read_destinations
from guard.values.finding import (
    HANDLE,
    LEAF_LIMIT,
    LINK,
    find_destinations,
    find_numbers,
    find_values,
    handle_value,
    is_phone,
    keys_of,
    leaf_value,
    link_values,
    look_alikes,
    message_value,
    number_value,
    whole_values,
)
from guard.values.instructions import matched_pattern
from guard.values.secret_rules import clear_secrets
from guard.values.shingles import KEPT, Piece, parts_kept, pieces_kept, shingles_kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.calls import ToolResult

RESULT_VALUES: Final = 2000
"""Values of one result that are labelled."""
RESULT_TEXT: Final = 1024 * 1024
"""Characters of one result that are looked through; what is beyond counts as read, and unknown."""
MESSAGE_LIMIT: Final = 200
NAME_LIMIT: Final = 8
"""Messages of one result, and names of one message or place, that a user may mean."""
LINK_LIMIT: Final = 500
"""Links of one result."""
EXCERPTS: Final = 12
EXCERPT_CHARS: Final = 160
"""Excerpts of one result that are kept for people, and characters of each."""
EXCERPT_ROOM: Final = 32 * 1024
"""Characters of one text that they are looked for in."""

ITEMS_SHOWN: Final = 4
"""Items of one result that a session remembers one by one."""
READING_MEMORY: Final = frozenset({Role.RECALL, Role.LIST})
WRITING: Final = frozenset({Role.SAVE, Role.DRAFT, Role.SEND})

RECEIPT_LIMIT: Final = 4096
"""Characters of a receipt, and words of a call that it may repeat."""
RECEIPT_IDS: Final = 4
"""Numbers and ids in one text of a receipt."""
_RECEIPT_WORD: Final = re.compile(r"[^\W_]+")
_NAME_IN_MAILBOX: Final = re.compile(r"[^\W\d_]{3,}")
_RECEIPT_WORDS: Final = frozenset(
    """a accepted acknowledged added affected and appended at be been by bytes changed channel chat
    collection committed complete completed content count created data date deleted delivered
    doc docs document done draft drafted drafts edge edges email emails embedding embeddings
    entities entity entries entry event fact facts false file for forgotten has have id ids in
    inserted is item items job key label mail memories memory message messages modified name
    new no node nodes note notes null number object observation observations of ok okay on
    operation pending point points posted processed queued receipt received recipient
    recipients record records relation relations removed request response result rev revision
    row rows saved scheduled sent shared size status store stored subject success successful
    successfully task text the thread time timestamp to total true type uid updated uploaded
    upserted user uuid value vector vectors version was were with written your""".split()  # noqa: SIM905
)


def is_receipt(text: str, own: frozenset[str]) -> bool:
    """Return whether a text only confirms a call: in its own words, ids, and words of receipts.

    Args:
        text: of the answer.
        own: words of the call.
    """
    if len(text) > RECEIPT_LIMIT:
        return False
    words = set(_RECEIPT_WORD.findall(text.casefold())) - own - _RECEIPT_WORDS
    return len(words) <= RECEIPT_IDS and all(any(c.isdigit() for c in word) for word in words)


def portable(policy: Policy, result: ToolResult) -> tuple[Policy, ToolResult]:
    """Return as much of a policy and a result as :func:`result_writes` reads, to be pickled.

    Rules, and what tells which tool a mapping speaks of, are functions of this process.
    """
    guarded = next((mapping for mapping in policy.tools if mapping.arguments.guarded), None)
    policy = replace(
        policy,
        tools=() if guarded is None else (bare_mapping(guarded),),
        rules=(),
        destinations=replace(policy.destinations, established={}),
        memory=None,
        selections={},
        propagation=None,
        http_tools=None,
        servers=(),
        needs=policy.needs.portable(result.call.call),
        source=PolicySource(),
    )
    traced = result.call
    mapping = traced.classified.mapping
    classified = replace(
        traced.classified,
        mapping=mapping and bare_mapping(mapping),
        memory_write=None,
        suspects=(),
        body=(),
    )
    traced = replace(
        traced,
        classified=classified,
        guarded=(),
        private=None,
        saved=None,
        on_executed=(),
        reached=(),
        approved=None,
        context=None,
    )
    return policy, replace(result, call=traced)


def metered_writes(seal: Seal, policy: Policy, result: ToolResult) -> tuple[list[LabelWrite], bool]:
    """Return :func:`result_writes` within the work that one message may take.

    Raises:
        WorkExceededError: it needs more.
    """
    with within(WorkBudget()):
        return result_writes(seal, policy, result)


def result_writes(seal: Seal, policy: Policy, result: ToolResult) -> tuple[list[LabelWrite], bool]:
    """Return the labels of what a result contains, and whether a bound cut any off.

    Args:
        seal: the deployment's key.
        policy: in force.
        result: of a call, or what a server says besides.
    """
    sets, seal = label_sets(policy.limits), seal.folding(policy.fold)
    identity = result.call.call.identity
    intake = ResultIntake(seal, sets, policy, result, seal.session(identity))
    writes, overflow = intake.writes()
    mapping = result.call.classified.mapping
    if mapping is not None and mapping.store and mapping.role in READING:
        area, recalled = sets.session(identity), intake.recalled(mapping, whole=not overflow)
        entries = tuple(write_recall(seal, area, RECALLS, one) for one in recalled)
        writes.append(LabelWrite(area, LabelWriteMode.APPEND, entries))
    if result.call.classified.role in READING_MEMORY:
        writes.append(_memory_read(seal, sets, intake))
    return writes, overflow


def _memory_read(seal: Seal, sets: LabelSets, intake: ResultIntake) -> LabelWrite:
    """Return the record that a principal has read memory: it holds in all of its sessions."""
    call, at = intake.result.call.call, intake.result.at
    area = sets.restrictions(call.identity.tenant, call.identity.principal)
    record = LabelRecord(
        Integrity.UNTRUSTED,
        Channel.MEMORY,
        intake.result.call.index,
        at,
        intake.session,
        call.tool,
        until=at + sets.memory_read,
    )
    return LabelWrite(area, LabelWriteMode.REPLACE, (seal.write(area, RECALLED, record),))


@dataclass(slots=True)
class ResultIntake:
    """Reads one result, once."""

    seal: Seal
    areas: LabelSets
    policy: Policy
    result: ToolResult
    session: bytes = b""
    _untrusted: dict[str, bytes] = field(default_factory=dict)
    """Mark of the source by value; the first that named it."""
    _by_others: set[str] = field(default_factory=set)
    """Untrusted values that somebody else has named than the sender whose address it is."""
    _attested: dict[str, Integrity] = field(default_factory=dict)
    _held: dict[str, tuple[Channel, Entry | None, tuple[bytes, ...]]] = field(default_factory=dict)
    """Values that a directory or an own record holds, the entry with a name that each is in, and
    the marks of the services that it is valid in."""
    _service: bytes = b""
    """Mark of the service that answers."""
    _private: dict[str, None] = field(default_factory=dict)
    _pieces: list[Piece] = field(default_factory=list)
    _excerpts: list[str] = field(default_factory=list)
    """Text around the first untrusted values: shown to a person who is asked about one."""
    _overflow: bool = False
    _text: int = 0
    _traces_numbers: bool = False
    _own_words: frozenset[str] | None = None
    _sources: frozenset[bytes] = frozenset()

    def __post_init__(self) -> None:
        # Only a rule about guarded numbers asks for the origin of a number.
        kinds = self.policy.needs.guarded_kinds
        is_asked = kinds is None or "number" in kinds
        self._traces_numbers = is_asked and any(
            mapping.arguments.guarded for mapping in self.policy.tools
        )
        self._service = service_marks(self.seal, self.result.call.classified)[0]

    def writes(self) -> tuple[list[LabelWrite], bool]:
        """Return the records to store, and whether a bound cut values off."""
        mapping = _mapping_then(self.result)
        default = mapping.source if mapping is not None else Integrity.UNTRUSTED
        roots = roots_of(self.result.content)
        self._sources = marks_of(self.result)
        only = next(iter(self._sources)) if len(self._sources) == 1 else b""
        private = self.policy.needs.traces_private and mapping is not None and mapping.private
        read_untrusted = False
        for root in roots:
            for whole in map(vouched, leaves_of(root, mapping, default, only)):
                leaf = self._within_room(whole)
                if leaf is None:
                    read_untrusted = True
                    break
                self._take(leaf)
                self._take_private(leaf.text, private=private)
                read_untrusted |= leaf.label is Integrity.UNTRUSTED and self._says(leaf.text)
        self._forget_echoes()
        writes = [*self._taints(mapping), *self._attestations()]
        if mapping is not None and mapping.reading.messages is not None:
            writes.extend(self._messages(roots, mapping.reading.messages))
        if mapping is not None and mapping.reading.links is not None:
            writes.extend(self._links(roots, mapping.reading.links))
        if mapping is not None and mapping.attests:
            writes.extend(self._supplied(roots, mapping))
        if self._excerpts:
            writes.append(self._excerpt_write())
        writes.extend(self._private_writes())
        if read_untrusted and self._reads(mapping):
            writes.append(self._mark_read())
        return writes, self._overflow

    def recalled(self, mapping: ToolMapping, *, whole: bool) -> list[Recalled]:
        """Return what a memory has answered, for the hops of what its session saves next.

        One for each item that the policy finds in the result, and one of the store for the rest.

        Args:
            mapping: of the memory's tool.
            whole: whether every value of the result has been labelled.
        """
        call, index = self.result.call.call, self.result.call.index
        by = LabelRecord(
            mapping.source, Channel.MEMORY, index, self.result.at, self.session, call.tool
        )
        left = {*self._untrusted, *self._attested, *self._held}
        shown = self._items(mapping, left)
        for values in shown.values():
            left -= values
        if left or not shown:
            shown[item_value(mapping, mapping.store, call.arguments)] = left
        return [
            Recalled(
                place_of(self.seal, mapping.store, item),
                by,
                frozenset([self.seal.fingerprint(value)[:SHORT] for value in values]),
                # Values are not extracted from advisory text.
                whole and mapping.source is not Integrity.ADVISORY,
            )
            for item, values in shown.items()
        ]

    def _items(self, mapping: ToolMapping, values: set[str]) -> dict[str, set[str]]:
        """Return the items that a result shows, where the policy says, with the values of each.

        Of more than a session remembers none: it may then have been shown any.
        """
        found: dict[str, set[str]] = {}
        if mapping.items is None:
            return found
        for name, item in islice(items_in(self.result.content, mapping.items), ITEMS_SHOWN + 1):
            held = found.setdefault(f"item:{mapping.store}:{name}", set())
            for text in strings_in(item):
                own = find_values(text)
                held |= values.intersection((leaf_value(text), *own.plain, *own.disguised))
        return found if len(found) <= ITEMS_SHOWN else {}

    def _private_writes(self) -> Iterator[LabelWrite]:
        """Yield what private text is known by."""
        identity = self.result.call.call.identity
        if self._private:
            of = self._record(Integrity.AUTHENTICATED, Channel.FIELD)
            yield from private_shingle_writes(self.seal, self.areas, identity, of, self._private)
        if self._pieces:
            yield piece_write(self.seal, self.areas, identity, self._pieces)

    def _take_private(self, text: str, *, private: bool) -> None:
        """Take what a private text is known by, whole and in pieces; a secret in any is private."""
        if not private:
            for secret in clear_secrets(text) if self.policy.needs.traces_pieces else ():
                self._pieces.extend(islice(parts_kept(secret), KEPT - len(self._pieces)))
            return
        self._private.update(dict.fromkeys(shingles_kept(text)))
        if self.policy.needs.traces_pieces:
            self._pieces.extend(islice(pieces_kept(text), KEPT + 1 - len(self._pieces)))
        self._overflow |= max(len(self._private), len(self._pieces)) > KEPT

    def _within_room(self, leaf: Leaf) -> Leaf | None:
        """Return what there is room for of a text; None where there is none."""
        room = RESULT_TEXT - self._text
        if room <= 0 or len(self._untrusted) > RESULT_VALUES:
            self._overflow = True
            return None
        self._text += len(leaf.text)
        if len(leaf.text) <= room:
            return leaf
        self._overflow = True
        return leaf._replace(text=leaf.text[:room])

    def _taint(self, values: Iterable[str], origin: bytes, *, says_who: bool = False) -> None:
        for value in values:
            self._untrusted.setdefault(value, origin)
            if says_who:
                continue
            if not origin or origin != source_mark(value.partition(":")[2]):
                self._by_others.add(value)

    def _take(self, leaf: Leaf) -> None:
        text, label, whole = leaf.text, leaf.label, leaf.whole
        if label is Integrity.ADVISORY:
            return
        handle = leaf_value(text) if whole else None
        if self._traces_numbers:
            self._take_numbers(leaf, whole=handle is not None)
        if leaf.channel is not Channel.RESULT and whole:
            self._take_field(leaf, handle)
        elif label is Integrity.UNTRUSTED or leaf.channel is not Channel.RESULT:
            found = find_values(text)
            self._overflow = self._overflow or found.overflow
            self._taint(found.plain, leaf.origin)
            self._taint(found.disguised, leaf.origin)
            if found.plain and len(self._excerpts) < EXCERPTS:
                room = EXCERPTS - len(self._excerpts)
                self._excerpts.extend(islice(_excerpts(text, found.plain), room))
            if handle is not None:
                self._taint((handle, *look_alikes(handle)), leaf.origin)
        # A text cannot say who may receive, with any label: a directory does.

    def _take_numbers(self, leaf: Leaf, *, whole: bool) -> None:
        """Take the numbers of a text; a field vouches for the number that it is."""
        number = number_value(leaf.text) if whole else None
        if leaf.channel is Channel.COUNTERPARTY and number is not None:
            self._taint((number,), leaf.origin, says_who=True)
        elif leaf.label is Integrity.UNTRUSTED:
            self._taint(find_numbers(leaf.text) if number is None else (number,), leaf.origin)
        elif number is not None:
            self._attest((number,), leaf.label)

    def _take_field(self, leaf: Leaf, handle: str | None) -> None:
        """Take a field of which the policy says who writes it.

        It speaks of a value that is all of it.  A name that somebody chose can be as long as a
        letter; what is written inside one is text like any other.
        """
        values = whole_values(leaf.text)
        whole = values if handle is None else (*values, handle)
        if leaf.channel is Channel.COUNTERPARTY:
            looks = () if handle is None else look_alikes(handle)
            self._taint((*whole, *looks), leaf.origin, says_who=True)
        else:
            for value in whole:
                if is_of_kind(value, leaf.kinds):
                    services = services_of(self.seal, value, self._service, leaf.serves, leaf.kinds)
                    self._held[value] = leaf.channel, leaf.entry, services
                elif value != handle:
                    # A display name that is an address: somebody chose it.
                    self._taint((value,), leaf.origin)
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
        """Drop what the call itself said: an answer that repeats it is not a source of it."""
        if not self._untrusted:
            return
        echoes: set[str] = set()
        for leaf in leaves_of(dict(self.result.call.call.arguments), None, Integrity.UNTRUSTED):
            found = find_values(leaf.text)
            echoes.update(found.plain, found.disguised)
            handle = leaf_value(leaf.text)
            if handle is not None:
                echoes.update((handle, *look_alikes(handle)))
        for value in echoes & self._untrusted.keys():
            del self._untrusted[value]

    def _record(self, label: Integrity, channel: Channel) -> LabelRecord:
        call = self.result.call
        return LabelRecord(label, channel, call.index, self.result.at, self.session, call.call.tool)

    def _taints(self, mapping: ToolMapping | None) -> list[LabelWrite]:
        identity = self.result.call.call.identity
        from_memory = mapping is not None and bool(mapping.store) and mapping.role in READING
        channel = Channel.MEMORY if from_memory else Channel.RESULT
        record = self._record(Integrity.UNTRUSTED, channel)
        epoch = self.areas.epoch(self.result.at)
        seal = self.seal
        grouped: dict[int, list[tuple[bytes, bytes]]] = {}
        bodies: dict[tuple[bytes, bool], bytes] = {}
        self._overflow = self._overflow or len(self._untrusted) > RESULT_VALUES
        for value, origin in islice(self._untrusted.items(), RESULT_VALUES):
            kind = origin, value in self._by_others
            if kind not in bodies:
                by = replace(record, origin=origin) if origin else record
                by = by if kind[1] else replace(by, channel=Channel.COUNTERPARTY)
                bodies[kind] = seal.body(by)
            mark = seal.fingerprint(value)
            grouped.setdefault(bucket_of(mark), []).append((mark, bodies[kind]))
        writes: list[LabelWrite] = []
        for bucket, found in grouped.items():
            sets = self.areas.of_bucket(identity.tenant, identity.principal, bucket, epoch)
            area = sets.taints[-1]
            entries = seal.sealed_all(area, found)
            # Values from a memory keep the label that they were saved with, if any.
            unless = sets.memory if from_memory else None
            writes.append(LabelWrite(area, LabelWriteMode.TAINT, entries, unless=unless))
        return writes

    def _excerpt_write(self) -> LabelWrite:
        """Return the excerpts of the result, enciphered; they are kept for a session's time."""
        call = self.result.call
        tenant = call.call.identity.tenant
        area = self.areas.excerpt(tenant, self.session, call.index, self.result.at)
        body = json.dumps(self._excerpts).encode()
        entry = EXCERPT, self.seal.enciphered(area, EXCERPT, body)
        return LabelWrite(area, LabelWriteMode.REPLACE, (entry,))

    def _attestations(self) -> list[LabelWrite]:
        area = self.areas.session(self.result.call.call.identity)
        entries = [
            self.seal.write(area, self.seal.fingerprint(value) + ATTESTED, self._own_record(label))
            for value, label in list(self._attested.items())[:RESULT_VALUES]
        ]
        writes = [LabelWrite(area, LabelWriteMode.RAISE, tuple(entries))] if entries else []
        return [*writes, *self._directory_entries(area)]

    def _own_record(self, label: Integrity, channel: Channel = Channel.FIELD) -> LabelRecord:
        """Return the record of what vouches for this principal alone, until labels end."""
        until = self.areas.until(self.result.at)
        principal = self.seal.principal(self.result.call.call.identity)
        return replace(self._record(label, channel), principal=principal, until=until)

    def _directory_entries(self, area: LabelSet) -> list[LabelWrite]:
        """Return what directories hold, each value with its entry's names, and each name's entry.

        A name is of use only as long as the session knows one entry that is called so.
        """
        seal = self.seal
        held, known = [], []
        ids: dict[Entry | str, tuple[str, list[bytes]]] = {}
        for value, (channel, entry, services) in islice(self._held.items(), RESULT_VALUES):
            record = self._own_record(Integrity.AUTHENTICATED, channel)
            record = replace(record, services=services) if services else record
            marks = self._marks(_entry_names(value, entry))
            if marks:
                # The same entry is often shown with more of its fields, or fewer.
                key = value if entry is None else entry
                ids[key] = max(value, ids[key][0] if key in ids else value), marks
            held.append(seal.write(area, seal.fingerprint(value) + ATTESTED, record, marks))
        for value, marks in ids.values():
            identity = seal.fingerprint(value).ljust(ID, b"\0")
            for mark in marks:
                name = mark + KNOWN_AS
                known.append((name, seal.sealed(area, name, identity)))
        self._overflow |= len(self._held) > RESULT_VALUES
        writes = [LabelWrite(area, LabelWriteMode.REPLACE, tuple(held))] if held else []
        return [*writes, LabelWrite(area, LabelWriteMode.APPEND, tuple(known))] if known else writes

    def _reads(self, mapping: ToolMapping | None) -> bool:
        """Return whether the result is something the session has now read, and nobody vouches."""
        call = self.result.call
        if mapping is None or not mapping.store or call.memory_label is None:
            return True
        return call.memory_label is Integrity.UNTRUSTED

    def _says(self, text: str) -> bool:
        """Return whether a text is more than nothing, or than the receipt of what was written."""
        call = self.result.call
        if call.classified.role not in WRITING:
            return bool(text.strip())
        if self._own_words is None and not is_receipt(text, frozenset()):
            own = leaves_of(dict(call.call.arguments), None, Integrity.UNTRUSTED)
            words = (word for leaf in own for word in _RECEIPT_WORD.findall(leaf.text.casefold()))
            self._own_words = frozenset(islice(words, RECEIPT_LIMIT))
        return self._own_words is not None and not is_receipt(text, self._own_words)

    def _mark_read(self) -> LabelWrite:
        area = self.areas.session(self.result.call.call.identity)
        record = self._record(Integrity.UNTRUSTED, Channel.READ)
        if len(self._sources) == 1:
            record = replace(record, origin=next(iter(self._sources)))
        return LabelWrite(area, LabelWriteMode.KEEP, (self.seal.write(area, READ, record),))

    def _links(self, roots: list[Root], where: LinkFields) -> list[LabelWrite]:
        """Return the links of messages, each with its place and its sender.

        A link may be read, exactly, if the user named one of them (``the #news channel``).  A
        sender's name is the mailbox, or a word of it if that is internal or listed: display names
        do not count.
        """
        area = self.areas.session(self.result.call.call.identity)
        record = self._record(Integrity.AUTHENTICATED, Channel.FIELD)
        places = list(_names(where.place, self.result.call.call)) if where.place else []
        names: dict[str, list[str]] = {}
        origins: dict[str, set[bytes]] = {}
        for message in messages_in(roots, where, MESSAGE_LIMIT):
            mailbox = _mailbox(message, where.sender)
            known = [*places, *self._called(mailbox)]
            origin = source_mark(mailbox.canonical) if mailbox is not None else b""
            for _, text in where.text.find(message):
                # A message with instructions to a model vouches for nothing in it.
                honest = isinstance(text, str) and matched_pattern(text) is None
                for link in _links_in(text) if honest else ():
                    names.setdefault(link, []).extend(known)
                    origins.setdefault(link, set()).add(origin)
        entries: list[tuple[bytes, bytes]] = []
        for link, known in islice(names.items(), LINK_LIMIT):
            mark = self.seal.fingerprint(link) + REPLY
            marks = origins[link]
            by = replace(record, origin=next(iter(marks))) if len(marks) == 1 else record
            entries.append(self.seal.write(area, mark, by, self._marks(known)))
        return [LabelWrite(area, LabelWriteMode.KEEP, tuple(entries))] if entries else []

    def _supplied(self, roots: list[Root], mapping: ToolMapping) -> list[LabelWrite]:
        """Return the values that the result supplies if its document or its site is named.

        INVARIANT (only what names it): each record bears the names by which a prompt counts.
        """
        found: dict[str, tuple[str, ...]] = {}
        reading, call, shared = mapping.reading, self.result.call, self.policy.needs.shared_hosts
        if not reading.delegates and shared is None:
            return []
        # However a text is taken apart, its instructions to a model stay with what it names.
        if any(matched_pattern(whole_text(root)) is not None for root in roots):
            return []
        documents = [document_of(root) for root in roots]
        if reading.named_by is not None and not self._overflow:
            named = [str(one) for _, one in reading.named_by.find(call.call.arguments)]
            names = names_of(named[0]) if len(named) == 1 else ()
            for value in supplied_by(documents, reading.supplies) if reading.delegates else ():
                found |= {delegated_value(action, value): names for action in reading.delegates}
        pages = [target.destination for target in call.targets]
        if shared is not None and len(pages) == 1:
            found |= site_links(pages[0], documents, shared)
        area = self.areas.session(call.call.identity)
        record = self._record(Integrity.AUTHENTICATED, Channel.FIELD)
        if len(self._sources) == 1:
            record = replace(record, origin=next(iter(self._sources)))
        entries = [
            self.seal.write(
                area, self.seal.fingerprint(value) + REPLY, record, self._marks(list(names))
            )
            for value, names in islice(found.items(), LINK_LIMIT)
            if names
        ]
        return [LabelWrite(area, LabelWriteMode.KEEP, tuple(entries))] if entries else []

    def _called(self, sender: Destination | None) -> Iterator[str]:
        """Yield what a prompt may call the sender of a message."""
        if sender is None:
            return
        yield mentioned_value(keys_of(sender)[0])
        if self.policy.status_of(sender) in LISTED:
            for name in _NAME_IN_MAILBOX.findall(sender.canonical.partition("@")[0]):
                yield words_value(handle_value(name))

    def _messages(self, roots: list[Root], where: MessageFields) -> list[LabelWrite]:
        """Return who sent each message, with the ids that a user may name it by."""
        area = self.areas.session(self.result.call.call.identity)
        record = self._record(Integrity.AUTHENTICATED, Channel.FIELD)
        own = replace(record, services=(self._service,))
        names: dict[str, list[str]] = {}
        inside: set[str] = set()
        wrote: dict[str, set[str]] = {}
        for message in messages_in(roots, where, MESSAGE_LIMIT):
            self._message(message, where, names, inside, wrote)
        # The mark of all who wrote messages under one id; zeros where nobody knows.
        writers = {
            value: source_mark(" ".join(sorted(by))) if by else UNKNOWN_WRITERS
            for value, by in wrote.items()
        }
        entries = [
            self.seal.write(
                area,
                self.seal.fingerprint(value) + REPLY,
                replace(own, origin=writers[value])
                if value in writers
                # A mailbox is one everywhere; whatever else a sender is called by, here alone.
                else own
                if value.startswith(OF_A_SERVICE)
                else record,
                self._marks(known),
            )
            for value, known in names.items()
        ]
        entries += [
            self.seal.write(area, self.seal.fingerprint(value) + ATTESTED, own) for value in inside
        ]
        return [LabelWrite(area, LabelWriteMode.REPLACE, tuple(entries))] if entries else []

    def _marks(self, names: list[str]) -> list[bytes]:
        return [self.seal.fingerprint(name) for name in dict.fromkeys(names)][:NAME_LIMIT]

    def _message(
        self,
        message: Json,
        where: MessageFields,
        names: dict[str, list[str]],
        inside: set[str],
        wrote: dict[str, set[str]],
    ) -> None:
        """Note the ids of one message, under its sender's address and under its id.

        A sender can write a second mailbox into the header: such a message vouches for nobody.
        """
        ids = [message_value(str(value)) for _, value in where.id.find(message)]
        senders = [value for _, value in where.sender.find(message) if isinstance(value, str)]
        sent_by = [d for sender in senders for d in read_destinations(sender)]
        if len(sent_by) > 1:
            return
        addresses = [key for destination in sent_by for key in keys_of(destination)[:1]]
        # A subject or a display name is what a stranger has chosen: it names no message.
        for value in (*addresses, *ids):
            names.setdefault(value, []).extend(ids)
        for value in ids:
            wrote.setdefault(value, set()).update(addresses)
        if sent_by and all(self.policy.status_of(d) in LISTED for d in sent_by):
            inside.update(ids)


def _excerpts(text: str, values: Iterable[str]) -> Iterator[str]:
    """Yield what stands around each of some values in a text, overlapping places once."""
    folded, end = text[:EXCERPT_ROOM].casefold(), 0
    for value in islice(values, 4 * EXCERPTS):
        place = folded.find(value.partition(":")[2], end)
        if place >= 0:
            start = max(0, place - EXCERPT_CHARS // 2)
            end = start + EXCERPT_CHARS
            yield text[start:end]


def excerpt_naming(seal: Seal, area: LabelSet, raw: object, receiver: str) -> str:
    """Return the excerpt of a result that names a receiver; empty where none is kept.

    Args:
        seal: the deployment's key.
        area: where the excerpts of the result are.
        raw: what lies there.
        receiver: canonical.
    """
    body = seal.deciphered(area, EXCERPT, raw) if isinstance(raw, bytes) else None
    wanted = receiver.casefold()
    for excerpt in [] if body is None else json.loads(body):
        values = find_values(excerpt).plain
        if wanted in excerpt.casefold() or any(v.partition(":")[2] == wanted for v in values):
            return str(excerpt)
    return ""


def is_of_kind(value: str, kinds: frozenset[str]) -> bool:
    """Return whether a field that speaks of some kinds of destination may vouch for a value."""
    kind = "phone" if "phone" in kinds and is_phone(value) else value.partition(":")[0]
    return not kinds or kind in kinds


def _entry_names(value: str, entry: Entry | None) -> list[str]:
    """Return the values of what people call an entry; a listed handle without a name is its own."""
    if entry is not None:
        return [name for text in entry.names for name in called(text)]
    is_word = value.startswith(HANDLE) and len(value) > len(HANDLE) + 1
    return [words_value(value)] if is_word else []


def called(name: str) -> list[str]:
    """Return the values of what people call somebody: the whole name, its first word, its last."""
    words = [word for word in name.split() if len(word) > 1]
    if not words or len(name) > LEAF_LIMIT:
        return []
    values = map(handle_value, dict.fromkeys((name, words[0], words[-1])))
    # An entry is also called as its name looks: people leave accents out.
    return [words_value(one) for value in values for one in (value, *look_alikes(value))]


def _mailbox(message: Json, sender: PathQuery) -> Destination | None:
    """Return the mailbox that sent a message, None where that is not one mailbox."""
    texts = [value for _, value in sender.find(message) if isinstance(value, str)]
    found = [destination for text in texts for destination in read_destinations(text)]
    return found[0] if len(found) == 1 and found[0].kind == "mail" else None


def _names(place: PathQuery, call: ToolCall) -> Iterator[str]:
    for _, value in place.find(call.arguments):
        if isinstance(value, str) and value.strip():
            yield words_value(handle_value(value))


def _links_in(text: str) -> Iterator[str]:
    for destination in find_destinations(text):
        if destination.kind == "url":
            yield from link_values(destination)
            whole, sign, _ = destination.canonical.partition(REST_SIGN)
            if sign:
                # A client may leave the fragment out.
                yield from link_values(replace(destination, canonical=whole))
    for value in find_values(text, disguised=False).plain:
        if value.startswith("host:"):
            yield LINK + value.removeprefix("host:")
            yield f"{LINK}http://{value.removeprefix('host:')}"


def piece_write(
    seal: Seal, areas: LabelSets, identity: Identity, pieces: Iterable[Piece]
) -> LabelWrite:
    """Return the records of the pieces of one result, at most ``KEPT``: where each belongs."""
    entries: list[tuple[bytes, bytes]] = []
    for text, unit, size, start, length in islice(pieces, KEPT):
        place = seal.fingerprint(f"unit:{unit}")[:UNIT_SIZE] + bytes((size, start, length))
        entries.append((seal.fingerprint(text), place))
    return LabelWrite(areas.pieces(identity), LabelWriteMode.GATHER, tuple(entries))


def private_shingle_writes(
    seal: Seal, areas: LabelSets, identity: Identity, record: LabelRecord, passages: Iterable[str]
) -> list[LabelWrite]:
    """Return the records of the passages of one result, at most ``KEPT``."""
    grouped: dict[LabelSet, list[tuple[bytes, bytes]]] = {}
    for passage in islice(passages, KEPT):
        mark = seal.fingerprint(passage)
        area = areas.private(identity, mark)
        grouped.setdefault(area, []).append(seal.write(area, mark, record))
    return [
        LabelWrite(area, LabelWriteMode.KEEP, tuple(written)) for area, written in grouped.items()
    ]


def _mapping_then(result: ToolResult) -> ToolMapping | None:
    """Return what the policy says of a result's tool at the time of the result."""
    mapping = result.call.classified.mapping
    if mapping is None:
        return None
    return mapping.declared_at(result.at) if mapping.attests else mapping.answered
