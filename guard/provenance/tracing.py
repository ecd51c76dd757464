"""Tracing of the values of one call: the look-ups and their evaluation.  Pure: no I/O.

A :class:`Tracing` begins before the state store is asked, with what the policy says of the call,
and ends with the store's reply: every value of the call then has its attestation, and what the call
will save has its label (docs/explanation/trust-model.md).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import chain, compress, islice, repeat
from operator import attrgetter, is_not
from typing import TYPE_CHECKING, Final

from guard.core.calls import (
    ANSWERS,
    LOADED,
    SAVING,
    ActionAttestation,
    ClassifiedCall,
    Target,
    TracedCall,
    remembered_texts,
    saved_document,
    with_suspects,
)
from guard.core.errands import ErrandCall, ErrandGrant
from guard.core.labels import (
    NO_QUERY,
    NO_REPLY,
    Channel,
    Context,
    Evidence,
    LabelLookup,
    LabelQuery,
    LabelRecord,
    LabelReply,
    LabelSet,
    LabelWrite,
    PrivateText,
)
from guard.core.model import Destination, DestinationStatus, Integrity, Role
from guard.provenance.approvals import Grant, Scope
from guard.provenance.errands import (
    ERRAND,
    action_of,
    began,
    covered_destinations,
    private_sources,
    read_grant,
)
from guard.provenance.label_sets import (
    COUNTERS,
    ITEM,
    KNOWN_AS,
    PINNED,
    PROMPT,
    RECALLS,
    label_sets,
    pin_field,
    pin_set,
)
from guard.provenance.ladder import (
    OF_A_SERVICE,
    TELLING,
    attest,
    attest_action,
    bound,
    service_marks,
    values_of,
    values_of_action,
)
from guard.provenance.lineage import entries_in, read_recalls
from guard.provenance.lookups import (
    FIELD,
    KNOWN,
    PLACE_ESTABLISHED,
    PLACE_GRANTED,
    PLACE_PINNED,
    PLACE_PRIVATE,
    PLAN_TEXT,
    TAINTS,
    VOUCHED,
    Asker,
    Slot,
    asked_of,
    folder_paths,
    folders_of,
    made_lookups,
    questions_of,
    short_lookups,
)
from guard.provenance.payments import amount_of, limited, within
from guard.provenance.prompts import REQUESTS, mentioned_value
from guard.provenance.saved_values import (
    Save,
    SavedParts,
    item_value,
    said_handles,
    saved_values,
    values_vouching,
    written_values,
)
from guard.provenance.seal import ANY_SERVICE, FINGERPRINT, UNKNOWN_WRITERS, Seal, names_in
from guard.provenance.tool_answers import (
    answer_of,
    outline_of,
    pin_digest,
    recipients_of,
)
from guard.values.capacity import carried_bits, registered
from guard.values.finding import MESSAGE, keys_of
from guard.values.shingles import SentShingles, sent_shingles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guard.core.policy import Policy
    from guard.core.trajectory import Snapshot

ASK_LIMIT: Final = 512
"""Values looked up for one call; a target beyond it stays unknown, and suspicious."""
_NOTHING_SENT: Final = SentShingles((), (), complete=True)
RECEIVERS_TOLD: Final = 4
"""Receivers of one call for each of whom is counted what he is told; further ones count as one."""
_VOUCHING: Final = frozenset({"field", "joined", "reply", "answered", "own", "memory"})
"""Places in an Evidence whose records say that a service has a value."""
_NO_SLOTS: Final[tuple[Slot, ...]] = ()
_OF_ITS_ERRAND: Final = ((ERRAND, KNOWN),)
_IS_THERE: Final = partial(is_not, None)


class Tracing:
    """Traces the values of one call.

    Args:
        seal: the deployment's key.
        policy: in force.
        classified: the call.
    """

    __slots__ = (
        "_action_listed",
        "_amount",
        "_at",
        "_call",
        "_carried",
        "_closed",
        "_complete",
        "_declared",
        "_delegates",
        "_directories",
        "_established",
        "_folders",
        "_granted",
        "_identity",
        "_item",
        "_lookups",
        "_named",
        "_pages",
        "_pin",
        "_places",
        "_plain",
        "_policy",
        "_private",
        "_receivers",
        "_saved",
        "_seal",
        "_selections",
        "_sent",
        "_sets",
        "_store",
        "_tool",
        "_values",
        "_written",
    )

    def __init__(self, seal: Seal, policy: Policy, classified: ClassifiedCall) -> None:
        self._seal = seal if policy.fold is None else seal.folding(policy.fold)
        self._plain, self._policy = seal, policy
        self._sets = label_sets(policy.limits)
        self._call = classified
        self._identity, self._at = classified.call.identity, classified.call.at
        self._directories = policy.index.has_directories or bool(policy.needs.delegated)
        """True if it matters what agents wrote."""
        self._selections = policy.index.replays
        self._values: dict[str, int] = {}
        """Questions about each value."""
        self._complete = classified.searched
        """True if every value was looked up."""
        self._sent = _NOTHING_SENT
        """Text of the call that may be known again where a private source has returned it."""
        self._action_listed: bool | None = None
        """True if the policy lists the action of the call; None if no rule asks for it."""
        self._carried: dict[bytes, int] = {}
        """Bits that the URLs of the call could carry, by counter."""
        self._private: list[LabelRecord] = []
        self._granted: list[ErrandGrant] = []
        """Errand grants that were found."""
        self._amount, self._tool, self._pin = amount_of(classified), outline_of(classified), ""
        """Amount of a payment; outline of a call of an unmapped tool, and digest of its pin."""
        self._item = ""
        """Value of the memory item that the call names, if it names one."""
        self._store = classified.saves_to
        """The memory that it saves into, empty where none."""
        self._receivers: dict[bytes, Target] = {}
        """Receivers that a send may have reached before, by the mark under which that is on
        record."""
        self._folders = folders_of(policy, classified)
        """Directories under which answers may be on record."""
        self._established: dict[Destination, LabelRecord] = {}
        """Receivers that it has reached."""
        key = self._identity.principal, classified.call.tool
        self._declared = policy.destinations.established.get(key, ())
        """Established receivers that the policy declares."""
        self._saved: SavedParts | None = None
        """Parts of its text, where it writes memory."""
        self._written: tuple[str, ...] = ()
        """Values that it writes into records of a service or of a memory."""
        self._pages = None if classified.role is Role.RETRIEVE else _LOADED
        """Paths of what is only read, so that nothing is sent there; None: everything is."""
        self._lookups: tuple[LabelLookup, ...] = ()
        self._places: tuple[tuple[LabelSet, Slot], ...] = ()
        """Set and field of each of the reply's values."""
        self._named: tuple[LabelSet, tuple[Slot, ...]] | None = None
        self._collect(policy)

    def _collect(self, policy: Policy) -> None:
        """Note every value of the call that is to be looked up."""
        call = self._call
        mapping = call.mapping
        self._collect_targets(policy)
        self._collect_action(policy)
        if self._values or mapping is None:
            # A question about the call belongs to the errand of its prompt.
            self._take(_OF_ITS_ERRAND)
        if policy.needs.counts_capacity:
            self._count_carried()
        # Private text is a matter of sends to somebody outside, and of answers to a server.
        sends = self._values or call.call.tool in ANSWERS
        if policy.needs.traces_private and sends and call.role not in SAVING:
            self._sent = sent_shingles(_texts_sent(call), pieces=policy.needs.traces_pieces)
        if mapping is not None and mapping.store:
            self._item = item_value(mapping, self._store or mapping.store, call.call.arguments)
        if self._store:
            plain, disguised, overflow = saved_values(saved_document(call))
            self._add(plain)
            self._add(disguised)
            self._add(said_handles(plain))
            self._complete = self._complete and not overflow
        if call.memory_write is not None:
            self._saved = saved = SavedParts.of(remembered_texts(call.call, call.memory_write))
            self._add(saved.plain)
            self._add(saved.further, TAINTS)
            self._add([saved.said] if saved.said else ())
            self._complete = self._complete and not saved.overflow
            room = max(0, ASK_LIMIT // 2 - len(self._values))
            self._add(islice(map(mentioned_value, saved.plain), room), VOUCHED)
        written = written_values(call) if self._directories else ()
        if written:
            self._written = written
            room = max(0, ASK_LIMIT // 2 - len(self._values))
            self._add(islice(values_vouching(written), room), VOUCHED)
            if self._closed and call.role is Role.SEND:
                self._add([REQUESTS, *islice(said_handles(written), room)], VOUCHED)

    def _collect_targets(self, policy: Policy) -> None:
        """Note the values of the destinations and guarded arguments of the call."""
        call = self._call
        mapping = call.mapping
        if self._pages and (call.call.protocol == HTTP or (mapping and mapping.reading.named_by)):
            self._pages |= _pages_read(call)
        if policy.needs.shared_hosts is not None and self._pages and _only_fetches(call):
            self._pages |= frozenset(target.path for target in call.targets)
        action = "" if mapping is None or mapping.action is None else mapping.action.name
        self._delegates = action if action in policy.needs.delegated else ""
        """Action of the call, if a named document may supply its recipient."""
        # Another server may use the name of a service that no server is declared for.
        self._closed = (
            mapping is not None
            and mapping.attests
            and (mapping.server, mapping.service) in policy.index.closed
            and bool(mapping.server or not call.call.upstream)
        )
        pages, guarded = self._pages, len(call.targets)
        for place, target in enumerate((*call.targets, *call.guarded, *call.suspects)):
            # Every other status decides by itself on which rung a destination stands.
            if target.status is DestinationStatus.EXTERNAL:
                reads = pages is None or target.path in pages
                reads = reads or guarded <= place < guarded + len(call.guarded)
                self._take(
                    questions_of(
                        target.destination,
                        reads=reads,
                        delegates=self._delegates,
                        closed=self._closed,
                    )
                )

    def _collect_action(self, policy: Policy) -> None:
        """Note the values under which the action of the call may have been requested."""
        mapping, actions = self._call.mapping, policy.needs.actions
        if self._folders:
            # A user who said no to a file is not overruled by an answer for its directory.
            paths = [path for path, _ in folder_paths(policy, self._call)]
            self._add((key for p in paths for key in keys_of(Destination("object", p))), VOUCHED)
        if self._tool is not None:
            for destination in self._tool.values:
                self._add(values_of(destination, reads=False)[0])
            self._add(filter(None, self._tool.named))
        if mapping is None or mapping.action is None or actions.words is None:
            return
        # A handle that is made as the user asked, and a recipient that a document supplies, need
        # the request as well.
        needs = self._delegates or (self._closed and self._call.role is Role.SEND)
        if not (needs or actions.judges(mapping.action.name)):
            return
        objects = [target.destination for target in self._call.objects]
        requested, tainting = values_of_action(mapping.action.name, objects)
        self._add(requested)
        self._add(tainting, TAINTS)
        self._action_listed = actions.lists(mapping.action.name, self._call.call.tool)

    def _count_carried(self) -> None:
        """Note how much each external host could be told by the call."""
        told: dict[str, set[str]] = {}
        for target in (*self._call.targets, *self._call.suspects):
            destination = target.destination
            external = target.status is DestinationStatus.EXTERNAL
            if external and destination.kind in TELLING:
                told.setdefault(registered(destination.host), set()).add(destination.canonical)
        for host, urls in islice(told.items(), ASK_LIMIT):
            mark = self._seal.fingerprint(f"carried:{host}")
            field = str(int.from_bytes(mark[:4], "big") % COUNTERS).encode()
            bits = sum(map(carried_bits, urls))
            self._carried[field] = self._carried.get(field, 0) + bits

    def _add(self, values: Iterable[str], about: int = KNOWN) -> None:
        """Note some more values, and what is asked about them."""
        self._take([(value, asked_of(value, about)) for value in values])

    def _take(self, questions: Sequence[tuple[str, int]]) -> None:
        """Note some more values, each with what is asked about it."""
        asked = self._values
        if not asked and len(questions) <= ASK_LIMIT:
            asked.update(questions)
            return
        for value, about in questions:
            before = asked.get(value)
            if before is None and len(asked) >= ASK_LIMIT:
                self._complete = False
                return
            asked[value] = (before or 0) | about

    def attach(self, classified: ClassifiedCall) -> None:
        """Take the call again: the same, with or without its arguments."""
        self._call = classified

    def query(self, definition: LabelLookup | None = None) -> LabelQuery:
        """Return what to read with the attempt.

        Args:
            definition: the look-up of the tool's definition, where definitions are pinned.
        """
        searched = self._values or self._store or self._item or self._sent.passages
        if not (searched or self._folders):
            return NO_QUERY if definition is None else LabelQuery(definition=definition)
        identity, sets = self._identity, self._sets
        if self._sent.passages:
            self._ask_passages()
        if self._item:
            mark = self._seal.fingerprint(self._item)
            area = sets.memory(identity.tenant, mark)
            self._ask(area, (Slot(mark + ITEM, "", "item"),))
        call = self._call.call
        receivers: dict[Destination, Target] = {}
        if self._tool is not None:
            field = pin_field(self._plain, call.tool, PINNED)
            self._ask(pin_set(call.upstream), (Slot(field, "", PLACE_PINNED),))
            receivers.update(recipients_of(self._tool))
        acts = self._action_listed is not None
        for target in islice(self._call.receivers(action=acts), ASK_LIMIT):
            receivers.setdefault(target.destination, target)
        for folder in self._folders:
            receivers[folder] = Target(folder, DestinationStatus.EXTERNAL)
        # Lookups of one recipient repeat soon: an agent writes to the same few.
        short = sum(map(len, self._values)) <= PLAN_TEXT
        asked = (short_lookups if short else made_lookups)(
            Asker(
                self._seal,
                self._plain,
                sets,
                identity.tenant,
                identity.principal,
                identity.session,
                sets.epoch(self._at),
                self._directories,
                self._selections,
                bool(self._store),
            ),
            tuple(self._values.items()),
            (call.server, call.upstream, call.tool),
            tuple(receivers),
            action_of(self._call),
            covered_destinations(self._policy, self._call, self._call.targets),
        )
        self._receivers = dict(zip(asked.receivers, receivers.values(), strict=True))
        repeats = not self._lookups
        seldom = len(self._lookups), asked.seldom
        # The session's set comes last: one command reads all of it.
        self._lookups += asked.lookups
        self._places += asked.places
        session, named = asked.session, asked.named
        self._named = None if named is None else (session, asked.named_slots)
        recalls = LabelLookup(session, (RECALLS,)) if self._store else None
        counters = None
        if self._carried:
            pairs = ((field, str(bits).encode()) for field, bits in self._carried.items())
            counters = LabelLookup(sets.carried(identity), tuple(chain(*pairs)))
        pieces: LabelLookup | None = None
        told: tuple[LabelSet, ...] = ()
        # Without receivers there is nobody to count for; the store's script takes no such look-up.
        if self._sent.pieces and (told := self._receivers_told()):
            marks = tuple(map(self._seal.fingerprint, self._sent.pieces))
            pieces = LabelLookup(sets.pieces(identity), marks)
        return LabelQuery(
            self._lookups, named, recalls, definition, counters, pieces, told, repeats, seldom
        )

    def _receivers_told(self) -> tuple[LabelSet, ...]:
        """Return where it is counted what each external receiver of the call has been told."""
        receivers: dict[str, None] = {}
        for target in (*self._call.targets, *self._call.suspects):
            destination = target.destination
            if target.status is DestinationStatus.EXTERNAL:
                tells = destination.kind in TELLING
                name = registered(destination.host) if tells else destination.canonical
                receivers[f"{'host' if tells else destination.kind}:{name}"] = None
        names = list(receivers)
        if len(names) > RECEIVERS_TOLD:
            names = [*names[: RECEIVERS_TOLD - 1], ""]
        return tuple(self._sets.told(self._identity, name) for name in names)

    def _ask(self, area: LabelSet, slots: Sequence[Slot]) -> None:
        """Have some fields of a set read."""
        self._lookups += (LabelLookup(area, tuple(map(FIELD, slots))),)
        self._places += tuple(zip(repeat(area), slots))

    def _ask_passages(self) -> None:
        """Ask whether a private source has returned passages of the body."""
        by_set: dict[int, tuple[LabelSet, list[Slot]]] = {}
        for passage in self._sent.passages:
            mark = self._seal.fingerprint(passage)
            area = self._sets.private(self._identity, mark)
            by_set.setdefault(id(area), (area, []))[1].append(Slot(mark, "", PLACE_PRIVATE))
        for area, slots in by_set.values():
            self._ask(area, slots)

    def result(
        self, snapshot: Snapshot, grant: Grant | None = None, definition: str = ""
    ) -> TracedCall:
        """Return the call with the rung of every value in it.

        Args:
            snapshot: the state before the call, with the reply to :meth:`query`.
            grant: of a human, for exactly this call.
            definition: digest of the tool's changed definition, where nobody has approved it.

        Raises:
            ValueError: the reply does not fit the query.
        """
        call, reply = self._call, snapshot.labels
        found = self._found(reply)
        whole = found.pop("", {})
        values: dict[str, Evidence] = {}
        for value, places in found.items():
            if value.startswith(OF_A_SERVICE):
                for place in _VOUCHING & places.keys():
                    places[place] = bound(places[place])
            values[value] = Evidence(**places)
        cut_off = snapshot.full or not self._complete or snapshot.principal.unlabelled > 0
        if self._declared:
            self._take_declared()
        # By place, here and below: by name it takes three times as long (CPython 3.11).
        context = Context(
            self._seal.session(self._identity),
            self._seal.principal(self._identity),
            self._at,
            grant is not None,
            cut_off or snapshot.incomplete,
            whole.get("read"),
            self._established,
            self._selections,
            self._remembers(snapshot, whole.get("recalled")),
            values,
            # A memory keeps the handles of every service; the saved record keeps their marks.
            None
            if call.role is Role.SAVE or call.memory_write is not None
            else frozenset((ANY_SERVICE, *service_marks(self._seal, call))),
            self._delegates,
            self._closed,
        )
        known = call.call.index
        index = sum(snapshot.session.attempted) if known is None else known
        item = whole.get("item")
        saved = self._saved
        targets = _attested(call.targets, context, self._pages)
        if call.suspects:
            targets = with_suspects(targets, _attested(call.suspects, context, self._pages))
        changed, tool = reply.definition is not None, None
        if self._tool is not None:
            cover = None if grant is None else grant.cover
            tool, answered = answer_of(self._tool, self._pin, cover, context, changed=changed)
            call = replace(call, answered=True) if answered else call
        tells = self._private or reply.told or not self._sent.complete
        return TracedCall(
            call,
            targets,
            _attested(call.guarded, context, None) if call.guarded else (),
            index,
            # An altered record counts: one cannot be made.
            self._private_text(reply) if tells else None,
            self._most_carried(reply) if self._carried or reply.counters else 0,
            item.label if item is not None and item.sealed else None,
            saved.label(context, unsure=cut_off) if saved is not None else None,
            self._saves_made(reply, context, index, unsure=cut_off) if self._store else (),
            self._written,
            self._reached(() if grant is None else grant.folders),
            None if grant is None else self._approved(grant, context, index),
            "" if grant is None else grant.by,
            context,
            self._action(context),
            changed,
            definition,
            tool,
            self._errand_call(reply, context),
        )

    def _reached(self, folders: tuple[tuple[str, str], ...]) -> tuple[Target, ...]:
        """Return the receivers that the call may establish: directories where a grant has them."""
        reached = self._receivers.values()
        if folders:
            found = {target.destination: target for target in reached}
            return tuple(found[d] for d in self._folders if (d.kind, d.canonical) in folders)
        return tuple(target for target in reached if target.destination not in self._folders)

    def _remembers(self, snapshot: Snapshot, lately: LabelRecord | None) -> bool:
        """Return whether the session, or lately the principal, may have read a memory."""
        session = snapshot.session
        if session.possible(Role.RECALL) > 0 or session.possible(Role.LIST) > 0:
            return True
        # An altered record counts: one cannot be made.
        return lately is not None and self._at < (lately.until or math.inf)

    def _errand_call(self, reply: LabelReply, context: Context) -> ErrandCall | None:
        """Return the errand of the call; None where neither a prompt nor a grant is known."""
        said = context.values.get(ERRAND)
        at = began(said.prompt if said is not None else None)
        whole = self._sent.complete
        private = private_sources(self._private, part=reply.told > 0, whole=whole)
        known = at or self._granted or private
        return ErrandCall(at, private, tuple(self._granted)) if known else None

    def _action(self, context: Context) -> ActionAttestation | None:
        """Return the rung of the call's action; None if no rule asks for it."""
        mapping = self._call.mapping
        if self._action_listed is None or mapping is None or mapping.action is None:
            return None
        objects = _attested(self._call.objects, context, None)
        return attest_action(mapping.action.name, objects, context, listed=self._action_listed)

    def _private_text(self, reply: LabelReply) -> PrivateText:
        """Return what the call has of private text."""
        first = min(self._private, key=attrgetter("at"), default=None)
        return PrivateText(len(self._private), first, reply.told / 1000, self._sent.complete)

    def _most_carried(self, reply: LabelReply) -> int:
        """Return the highest of the counters that the call has added to.

        Raises:
            ValueError: the reply does not fit the query.
        """
        counted = reply.counters[::2]
        if len(counted) != len(self._carried) or not all(isinstance(n, int) for n in counted):
            raise ValueError("the store answered other counters than were asked")
        return max((n for n in counted if isinstance(n, int)), default=0)

    def _take_declared(self) -> None:
        """Note the receivers that the policy lets this principal send to again with this tool."""
        for target in self._call.receivers():
            for is_meant, ends in self._declared:
                if self._at < ends and is_meant(target.destination):
                    self._established[target.destination] = LabelRecord(
                        Integrity.AUTHENTICATED,
                        Channel.APPROVAL,
                        -1,
                        # Older than every no of the user, which counts more.
                        0.0,
                        b"",
                        self._call.call.tool,
                        principal=self._seal.principal(self._identity),
                        until=ends,
                    )

    def _approved(self, grant: Grant, context: Context, index: int) -> LabelRecord | None:
        """Return the record by which a grant establishes receivers, where it is to be remembered.

        It holds no longer than the policy lets a receiver be remembered.
        """
        if grant.scope in {Scope.CALL, Scope.ERRAND}:
            return None
        session = grant.scope is Scope.SESSION
        return LabelRecord(
            Integrity.AUTHENTICATED,
            Channel.SESSION_APPROVAL if session else Channel.APPROVAL,
            index,
            self._at,
            context.session,
            self._call.call.tool if self._amount is None else limited(self._amount, grant.limit),
            principal=context.principal,
            until=min(self._sets.established_until(self._at), grant.until),
        )

    def _saves_made(
        self, reply: LabelReply, context: Context, index: int, *, unsure: bool
    ) -> tuple[LabelWrite, ...]:
        """Return the labels of what the call saves."""
        session = self._sets.session(self._identity)
        recalls = read_recalls(self._seal, session, RECALLS, reply.recalls)
        save = Save(self._seal, self._sets, self._call, self._item, context, recalls, unsure)
        return tuple(save.writes(index))

    def _found(self, reply: LabelReply) -> dict[str, dict[str, LabelRecord]]:
        """Return the records that were found, by value and by place."""
        found: dict[str, dict[str, LabelRecord]] = {}
        if reply is NO_REPLY and not self._places and self._named is None:
            return found
        named_set, named = self._named or (None, _NO_SLOTS)
        if len(self._places) != len(reply.values) or len(reply.named) != len(named):
            raise ValueError("the store answered other look-ups than were asked")
        values = reply.values
        there = compress(zip(self._places, values, strict=True), map(_IS_THERE, values))
        for (area, slot), raw in there:
            self._keep(found, area, slot, raw)
        if named_set is not None:
            answers = zip(named, reply.named, strict=True)
            for slot, answer in compress(answers, map(_IS_THERE, reply.named)):
                self._keep_named(found, named_set, slot, answer)
        return found

    def _keep(
        self, found: dict[str, dict[str, LabelRecord]], area: LabelSet, slot: Slot, raw: object
    ) -> None:
        """Keep what a field holds of a place: taint has one record per period.

        The earliest counts, and before any of a counterparty one of anybody else.
        """
        if slot.place == PLACE_GRANTED:
            grant = read_grant(self._plain, area, slot.field, raw)
            self._granted += [grant] if grant is not None else []
            return
        if slot.place == PLACE_PINNED:
            body = self._plain.opened(area, slot.field, raw) if isinstance(raw, bytes) else None
            self._pin = pin_digest(body) if body is not None else ""
            return
        record = self._seal.read(area, slot.field, raw)
        if record is None:
            return
        if slot.place == PLACE_PRIVATE:
            self._private.append(record)
            return
        if slot.place == PLACE_ESTABLISHED:
            self._keep_established(slot, record, raw)
            return
        places = found.setdefault(slot.value, {})
        before = places.get(slot.place)
        if before is None or _first(record) < _first(before):
            places[slot.place] = record

    def _keep_established(self, slot: Slot, record: LabelRecord, raw: object) -> None:
        """Keep a recipient that the principal has sent to before."""
        receiver = self._receivers[slot.field[:FINGERPRINT]].destination
        if self._amount is not None and not within(self._amount, record.source):
            return
        if receiver.kind == "reply" and isinstance(raw, bytes):
            record = replace(record, origin=_mark_in(raw))
        if record.channel is Channel.SESSION_APPROVAL and (
            record.session != self._seal.session(self._identity)
        ):
            return
        # The policy may have become stricter since.
        until = min(record.until, self._sets.established_until(record.at))
        same = until == record.until
        self._established[receiver] = record if same else replace(record, until=until)

    def _keep_named(
        self,
        found: dict[str, dict[str, LabelRecord]],
        area: LabelSet,
        slot: Slot,
        answer: object,
    ) -> None:
        """Keep what a directory holds, and whatever bears a name that the user has given."""
        if not isinstance(answer, list) or len(answer) != 2:  # noqa: PLR2004 - record, names
            return
        raw, named = answer
        record = self._seal.read(area, slot.field, raw)
        is_field = slot.place == "field"
        if record is not None and is_field:
            found.setdefault(slot.value, {})["field"] = record
        if record is None or not record.sealed or not isinstance(raw, bytes):
            return
        if slot.value.startswith(MESSAGE) and not is_field and (mark := _mark_in(raw)):
            found.setdefault(slot.value, {})["answered"] = replace(record, origin=mark)
        for name, said, entries in zip(names_in(raw), named[::2], named[1::2], strict=False):
            said_by = self._seal.read(area, name + PROMPT, said)
            if said_by is None or not said_by.sealed or said_by.label < Integrity.TRUSTED:
                continue
            if not is_field:
                # The mark of the writer stands before the names, if the text has one writer.
                by = replace(record, origin=names_in(raw)[0])
                found.setdefault(slot.value, {})["reply"] = by
                return
            if self._is_one_entry(area, name + KNOWN_AS, entries):
                found.setdefault(slot.value, {})["joined"] = record
                return

    def _is_one_entry(self, area: LabelSet, field: bytes, raw: object) -> bool:
        """Return whether the session knows exactly one entry of a directory by a name."""
        entries = entries_in(self._seal, area, field, raw)
        return entries.whole and len(entries.bodies) == 1


def _mark_in(raw: bytes) -> bytes:
    """Return the mark before the names of a record; empty where it says that nobody is known."""
    mark = next(iter(names_in(raw)), UNKNOWN_WRITERS)
    return b"" if mark == UNKNOWN_WRITERS else mark


def _first(record: LabelRecord) -> tuple[bool, float, int]:
    return record.channel is Channel.COUNTERPARTY, record.at, record.call


def _texts_sent(call: ClassifiedCall) -> list[str]:
    """Return what a call says: its texts, and the URLs that it goes to, which say something too."""
    texts = [*call.body]
    for target in call.targets:
        if target.destination.kind == "url":
            texts.append(target.destination.canonical)
    return texts


def _pages_read(call: ClassifiedCall) -> frozenset[str]:
    """Return the paths of the arguments that, as the policy says, name a page which is read."""
    mapping, arguments = call.mapping, call.call.arguments
    if mapping is not None and mapping.reading.named_by is not None:
        return frozenset([path for path, _ in mapping.reading.named_by.find(arguments)])
    plain = call.call.protocol == HTTP and arguments.get("method") in _READING
    # Headers that say more than any client's can carry what is not to leave.
    if plain and not arguments.get("body") and not arguments.get("headers"):
        return _URL
    return frozenset()


def _only_fetches(call: ClassifiedCall) -> bool:
    """Return whether a send tells its URL nothing but the URL: no body, and no declared action."""
    mapping = call.mapping
    if mapping is None or mapping.action is not None or call.body or call.guarded:
        return False
    return all(target.destination.kind in TELLING for target in call.targets)


HTTP: Final = "http"
_URL: Final = frozenset({"$['url']"})
_READING: Final = frozenset({"GET", "HEAD"})


_LOADED: Final = frozenset({LOADED})


def _attested(
    targets: Sequence[Target], context: Context, pages: frozenset[str] | None
) -> tuple[Target, ...]:
    """Return some targets, each with the rung that it stands on.

    Args:
        targets: asked about.
        context: what is known of their values.
        pages: paths of those that are only read; None: all are.
    """
    found: list[Target] = []
    for target in targets:
        destination, status, path = target.destination, target.status, target.path
        rung = attest(destination, status, context, reads=pages is None or path in pages)
        found.append(Target(destination, status, path, rung))
    return tuple(found)
