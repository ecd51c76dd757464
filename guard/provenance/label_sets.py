"""Addresses of label records: one set for every kind of record.  Pure: no I/O."""

from __future__ import annotations

from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.labels import LabelSet

if TYPE_CHECKING:
    from guard.core.model import Destination, Identity
    from guard.core.policy import StateLimits
    from guard.provenance.seal import Seal

BUCKETS: Final = 64
"""Keys that a large set is spread over, so that none takes long to expire or to rehash."""
PRIVATE_BUCKETS: Final = 8
BUCKET_LIMIT: Final = 32_768
"""Records in one bucket; two million in a set."""
MEMORY_LIMIT: Final = 2 * BUCKET_LIMIT
"""Records in a bucket of memories: hops take at most half of it, so they never keep a label out."""
SESSION_LIMIT: Final = 20_000
"""Records of one session."""
EPOCHS: Final = 1
"""Periods within the life of a label: what was read in this one or so many before it is found."""
FOREVER: Final = 0
_BUCKET_NAMES: Final = tuple(f"{number:x}" for number in range(BUCKETS))
_REMEMBERED: Final = 1024
"""Label sets kept at hand.  Of many principals few come again soon: more would only fill memory."""

PIN_LIMIT: Final = 4000
"""Pins and marks of one upstream's tools."""
_LOOKUPS: Final = 1024
"""Look-ups of marks that are kept: one object per tool, as it is asked for with every call."""

GRANT_KIND: Final = "g"
PIN_KIND: Final = "d"
SESSION_KIND: Final = "v"
MEMORY_KIND: Final = "m"
TAINT_KIND: Final = "t"
OWN_KIND: Final = "n"
PRIVATE_KIND: Final = "b"
ESTABLISHED_KIND: Final = "e"
WRITTEN_KIND: Final = "w"
REQUEST_KIND: Final = "q"
WAITING_KIND: Final = "z"
WAITING_PARTS: Final = 16
WAITING_LIMIT: Final = 1000
"""Parts of a tenant's index of waiting requests, and requests of one part.  Those of one principal
are in one part: an agent that asks without end pushes out few requests of others."""
SENT_KIND: Final = "h"
EXCERPT_KIND: Final = "x"
CARRIED_KIND: Final = "k"
ANSWER_KIND: Final = "y"
_ANSWERS: Final = 8192
_ANSWERS_KEPT: Final = 24 * 3600 * 1000
"""Answers to requests for approval that are told of, and for how long, in milliseconds."""
PIECE_KIND: Final = "u"
TOLD_KIND: Final = "r"
RESTRICTION_KIND: Final = "a"
UNIT_SIZE: Final = 6
"""Bytes that tell a unit of private text from others; behind them size, start and length."""
UNITS_KEPT: Final = 8
"""Places of one piece: of a word that more units have, it is not known that the others have it."""
TOLD_LIMIT: Final = 8192
"""Places of private units on record for one receiver; beyond it everything counts as told."""
EXPLANATION_KIND: Final = "f"
COUNTERS: Final = 1024
"""Counters of what hosts could have been told; hosts that share one only make it stricter."""

PROMPT: Final = b"P"
ATTESTED: Final = b"A"
REPLY: Final = b"R"
CLAIM: Final = b"C"
TAINTED: Final = b"T"
ITEM: Final = b"K"
READ: Final = b"u"
RECALLED: Final = b"m"
"""The one field that says when a principal read memory last."""
KNOWN_AS: Final = b"N"
"""Behind a name: the entries of directories that are called so."""
WRITTEN: Final = b"W"
HOPS: Final = b"H"
RECALLS: Final = b"r"
ESTABLISHED: Final = b"E"
SELECTED: Final = b"S"
DENIED: Final = b"Z"
SHOWN: Final = b"D"
SENT: Final = b"N"
EXCERPT: Final = b"X"
"""Part of a field behind a fingerprint: which record of the value it is."""


PINNED: Final = b"D"
MARKED: Final = b"C"
"""Likewise behind the fingerprint of a tool: its pinned definition, or the mark that it changed."""


class BucketAreas(NamedTuple):
    """Sets that may hold records of a value, except those of one session."""

    own: LabelSet
    """Values that the principal saved while a directory or an own record vouched for them."""
    memory: LabelSet
    """The labels of the memories that the principals of a tenant share."""
    taints: tuple[LabelSet, ...]
    """Values that the principal read in the periods whose labels still hold."""
    written: LabelSet
    """Values that agents of the tenant wrote into records, without anybody vouching for them."""


_set: Final = lru_cache(maxsize=_REMEMBERED)(LabelSet)
"""One object per set, so that the many fields of a call group by identity."""


def _owner(identity: Identity) -> tuple[str, str]:
    return identity.tenant, identity.principal


def _part(fingerprint: bytes) -> str:
    """Return the name of the part of a set in which the records of a value lie."""
    return _BUCKET_NAMES[fingerprint[0] % BUCKETS]


class LabelSets:
    """The label sets of one deployment.

    Args:
        limits: of the policy in force.
    """

    __slots__ = (
        "_established",
        "_labels",
        "_period",
        "_session",
        "_taint",
        "_window",
        "memory_read",
    )

    def __init__(self, limits: StateLimits) -> None:
        self._session = limits.session_idle * 1000
        self._labels = limits.labels * 1000
        self._established = limits.established
        self._window = limits.principal_window * 1000
        self.memory_read = limits.memory_read
        """Seconds for which a read of memory weakens the replies in other sessions."""
        self._period = max(limits.labels // EPOCHS, 1)
        self._taint = self._labels + self._period * 1000

    def session(self, identity: Identity) -> LabelSet:
        """Return what a session was told: prompts, authenticated fields, senders of messages."""
        owner = (*_owner(identity), identity.session)
        return _set(SESSION_KIND, owner, "", self._session, SESSION_LIMIT)

    @lru_cache(maxsize=_REMEMBERED)  # noqa: B019  (`label_sets` keeps four of them)
    def of_bucket(self, tenant: str, principal: str, bucket: int, epoch: int) -> BucketAreas:
        """Return the sets in which the records of a value may lie, but for its session's.

        Args:
            tenant: of who asks.
            principal: who asks.
            bucket: of the value (:func:`bucket_of`).
            epoch: the period that the call lies in.
        """
        owner, part = (tenant, principal), _BUCKET_NAMES[bucket]
        return BucketAreas(
            _set(OWN_KIND, owner, part, self._labels, BUCKET_LIMIT),
            _set(MEMORY_KIND, (tenant,), part, FOREVER, MEMORY_LIMIT),
            tuple(
                _set(TAINT_KIND, owner, f"{period}.{part}", self._taint, BUCKET_LIMIT)
                for period in range(epoch - EPOCHS, epoch + 1)
            ),
            _set(WRITTEN_KIND, (tenant,), part, self._labels, BUCKET_LIMIT),
        )

    def restrictions(self, tenant: str, principal: str) -> LabelSet:
        """Return the conditions that only take away: they hold in every session of a principal."""
        return _set(RESTRICTION_KIND, (tenant, principal), "", self._labels, SESSION_LIMIT)

    def own(self, identity: Identity, fingerprint: bytes) -> LabelSet:
        """Return what a principal saved while a directory or an own record vouched for it."""
        return _set(OWN_KIND, _owner(identity), _part(fingerprint), self._labels, BUCKET_LIMIT)

    def taint(self, identity: Identity, fingerprint: bytes, epoch: int) -> LabelSet:
        """Return what a principal read in untrusted text during one period."""
        part = f"{epoch}.{_part(fingerprint)}"
        return _set(TAINT_KIND, _owner(identity), part, self._taint, BUCKET_LIMIT)

    def private(self, identity: Identity, fingerprint: bytes) -> LabelSet:
        """Return what a principal read in private texts lately."""
        part = f"{fingerprint[0] % PRIVATE_BUCKETS:x}"
        return _set(PRIVATE_KIND, _owner(identity), part, self._window, BUCKET_LIMIT)

    def pieces(self, identity: Identity) -> LabelSet:
        """Return the pieces of what a principal read in private texts lately."""
        return _set(PIECE_KIND, _owner(identity), "", self._window, BUCKET_LIMIT)

    def told(self, identity: Identity, receiver: str) -> LabelSet:
        """Return what a principal's calls have told one receiver of private texts lately."""
        return _set(TOLD_KIND, (*_owner(identity), receiver), "", self._window, TOLD_LIMIT)

    def carried(self, identity: Identity) -> LabelSet:
        """Return the counters of what hosts could have been told; a fixed number of fields."""
        return _set(CARRIED_KIND, _owner(identity), "", self._window, COUNTERS)

    def memory(self, tenant: str, fingerprint: bytes) -> LabelSet:
        """Return the labels of the memories that the principals of a tenant share."""
        return _set(MEMORY_KIND, (tenant,), _part(fingerprint), FOREVER, MEMORY_LIMIT)

    def established(self, tenant: str, fingerprint: bytes) -> LabelSet:
        """Return the receivers that the principals of a tenant have sent to before."""
        ttl = self._established * 1000
        return _set(ESTABLISHED_KIND, (tenant,), _part(fingerprint), ttl, BUCKET_LIMIT)

    def sent(self, tenant: str, fingerprint: bytes) -> LabelSet:
        """Return the record of sends of the principals of a tenant, as long as `established`."""
        ttl = self._established * 1000
        return _set(SENT_KIND, (tenant,), _part(fingerprint), ttl, BUCKET_LIMIT)

    def excerpt(self, tenant: str, session: bytes, call: int, at: float) -> LabelSet:
        """Return where excerpts of the untrusted text of one result are kept.

        Args:
            tenant: whose.
            session: digest of the session that read it.
            call: index of the call in the session.
            at: when, in seconds since the epoch.
        """
        part = f"{session.hex()}.{call}.{int(at)}"
        return LabelSet(EXCERPT_KIND, (tenant,), part, self._session, 1)

    def explanation(self, tenant: str, session: bytes, call: int, at: float) -> LabelSet:
        """Return where it is kept why a memory's answer vouches for nothing; as `excerpt`."""
        part = f"{session.hex()}.{call}.{int(at)}"
        return LabelSet(EXPLANATION_KIND, (tenant,), part, self._session, 1)

    def established_until(self, at: float) -> float:
        """Return when ends what a send at some time has established."""
        return at + self._established

    def until(self, at: float) -> float:
        """Return when ends what holds for a principal from a time on."""
        return at + self._labels / 1000

    def written(self, identity: Identity, fingerprint: bytes) -> LabelSet:
        """Return what agents of a tenant wrote into records of other services."""
        part = _part(fingerprint)
        return _set(WRITTEN_KIND, (identity.tenant,), part, self._labels, BUCKET_LIMIT)

    def epoch(self, at: float) -> int:
        """Return the period that a time lies in."""
        return int(at // self._period)


label_sets: Final = lru_cache(maxsize=4)(LabelSets)
"""The label sets under a policy's limits: the same object for the same limits."""


def pin_set(upstream: str) -> LabelSet:
    """Return the set that keeps the pins of an upstream's tools; it does not expire."""
    return LabelSet(PIN_KIND, (upstream,), "", FOREVER, PIN_LIMIT)


def pin_field(seal: Seal, tool: str, kind: bytes) -> bytes:
    """Return the field of a tool's pin (``PINNED``) or of the mark on it (``MARKED``)."""
    return seal.fingerprint(f"tool:{tool}") + kind


@lru_cache(maxsize=_LOOKUPS)
def established_mark(
    seal: Seal, principal: str, tool: tuple[str, str, str], destination: Destination
) -> tuple[bytes, str]:
    """Return the fingerprint of principal, tool and receiver of a send, and what it is made of.

    Args:
        seal: the deployment's key.
        principal: who sends.
        tool: listener, upstream and name of the tool.
        destination: the receiver.
    """
    parts = (principal, *tool, destination.kind, destination.canonical)
    # Each part is escaped, so that none runs on.
    shown = "\0".join(map(encode_basestring_ascii, parts))
    return seal.fingerprint(f"established:{shown}"), shown


def bucket_of(fingerprint: bytes) -> int:
    """Return which part of every set that is spread over keys the records of a value lie in."""
    return fingerprint[0] % BUCKETS


def request(tenant: str, decision_id: str, ttl: int) -> LabelSet:
    """Return where a request for approval is kept, for ``ttl`` seconds.

    Its key begins as those of all requests of the tenant, and ends with the decision id.
    """
    return LabelSet(REQUEST_KIND, (tenant,), decision_id, ttl * 1000, 1)


def waiting(tenant: str, part: int, ttl: int) -> LabelSet:
    """Return where the decision ids of waiting requests are listed by their end.

    Args:
        tenant: of the requests.
        part: number of the part (:func:`waiting_part`).
        ttl: seconds until a request ends.
    """
    return _set(WAITING_KIND, (tenant,), f"{part:x}", ttl * 1000, WAITING_LIMIT)


def waiting_part(seal: Seal, principal: str) -> int:
    """Return the part of the index that lists the waiting requests of a principal."""
    return seal.fingerprint(f"waiting:{principal}")[0] % WAITING_PARTS


def answers(tenant: str) -> LabelSet:
    """Return where it is told which requests for approval have been answered."""
    return LabelSet(ANSWER_KIND, (tenant,), "", _ANSWERS_KEPT, _ANSWERS)


def grant(digest: str, ttl: int) -> LabelSet:
    """Return where the grant for one very call is kept, for ``ttl`` seconds."""
    return LabelSet(GRANT_KIND, (digest,), "", ttl * 1000, 1)
