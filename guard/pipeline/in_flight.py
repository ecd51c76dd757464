"""Requests that were forwarded and have no answer yet: in this process, and shared by several.

An entry that was removed makes its result unknown: it is withheld, or counts as untrusted, like the
result of a call that was never seen.

A call whose answer will come in its own exchange stays in the memory of the process that forwarded
it.  What may come back elsewhere (in the stream of HTTP+SSE, in a stream that is resumed, as a
task's result, in the history of a model's conversation) is kept in the store as well: the call with
what provenance found of it, enciphered with the deployment's key and bound to its place.  No call
waits until it is written; a process that finds nothing withholds the result, as one without a call.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
import zlib
from collections import Counter, OrderedDict
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from guard.core.calls import ActionAttestation, ClassifiedCall, Target, TracedCall
from guard.core.errands import ErrandCall, ErrandGrant
from guard.core.errors import GuardError
from guard.core.json_values import parts_of
from guard.core.labels import (
    ActionRung,
    Attestation,
    Channel,
    Context,
    Evidence,
    LabelRecord,
    LabelSet,
    LabelWrite,
    LabelWriteMode,
    PrivateText,
    Rung,
    SavedText,
)
from guard.core.metrics import CALLS_FORGOTTEN, ERRORS, Metrics
from guard.core.model import (
    Destination,
    DestinationStatus,
    Identity,
    Integrity,
    Json,
    PrincipalRung,
    Role,
    SessionRung,
    ToolCall,
)
from guard.core.tool_answers import Cover, ToolAnswer, ToolOutline
from guard.pipeline.classification import classify
from guard.protocols.http.metadata import is_plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from guard.core.policy import Policy
    from guard.core.ports import SharedTexts
    from guard.provenance.seal import Seal


Held = TypeVar("Held")

CallKey: TypeAlias = tuple[Literal["message", "task", "model"], str, str, str, str]
"""Key by which a result names its call (the id of its message, of a task, or of a call in a model's
answer), then listener (a server answers its own calls only), principal, session and the id.  For a
model's calls listener and session are empty: a history may come back in any."""
_Stream: TypeAlias = tuple[str, str, str, str]
"""A key without the id."""

BYTES: Final = 128 * 1024 * 1024
"""Bytes of all entries."""
SHARE: Final = 4
"""One principal holds at most this fraction of the bytes, so that others keep room."""
SECONDS: Final = 6 * 3600.0
"""Age at which an entry is removed; the store keeps its copy as long."""
OVERHEAD: Final = 2048
"""Bytes of an entry besides its text: what provenance found, and the entry itself."""
_ITEM: Final = 64
"""Bytes of a JSON value besides its text."""


class _Entry(NamedTuple, Generic[Held]):
    held: Held
    size: int
    at: float


class _Owner:
    """The keys of one principal, oldest first, and their bytes."""

    __slots__ = ("keys", "size")

    def __init__(self) -> None:
        self.keys: OrderedDict[CallKey, None] = OrderedDict()
        self.size = 0


class InFlight(Generic[Held]):
    """Entries by key; the oldest are removed where a bound is reached.

    Every method takes a time that does not depend on the number of entries.

    Args:
        limit: bytes of all entries.
        seconds: age at which an entry is removed.
        now: seconds of a clock that is not set back.
        metrics: counts entries that were removed without an answer.
    """

    def __init__(
        self,
        *,
        limit: int = BYTES,
        seconds: float = SECONDS,
        now: Callable[[], float] = time.monotonic,
        metrics: Metrics | None = None,
    ) -> None:
        self._limit, self._share = limit, limit // SHARE
        self._seconds = seconds
        self._now = now
        self._metrics = metrics or Metrics()
        self._entries: OrderedDict[CallKey, _Entry[Held]] = OrderedDict()
        self._owners: dict[str, _Owner] = {}
        self._streams: dict[_Stream, dict[CallKey, None]] = {}
        self._kinds: Counter[str] = Counter()
        """Number of entries by kind of key."""
        self.size = 0
        """Bytes of all entries."""

    def awaited(self) -> int:
        """Return how many calls were forwarded, rather than released in a model's answer."""
        return len(self) - self._kinds["model"]

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def add(self, key: CallKey, held: Held, size: int) -> None:
        """Keep an entry; an entry of the same key is replaced.

        Args:
            key: names the answer.
            held: the entry.
            size: bytes of its text.
        """
        now = self._now()
        self._remove_old(now)
        if key in self._entries:
            self._removed(key)
        size += OVERHEAD + sum(map(len, key))
        self._entries[key] = _Entry(held, size, now)
        owner = self._owners.setdefault(key[2], _Owner())
        owner.keys[key] = None
        owner.size += size
        self._streams.setdefault(key[:-1], {})[key] = None
        self._kinds[key[0]] += 1
        self.size += size
        while owner.size > self._share:
            self._forget(next(iter(owner.keys)), "principal")
        while self.size > self._limit:
            self._forget(next(iter(self._entries)), "bytes")

    def holds(self, key: CallKey) -> bool:
        """Return whether there is an entry of a key."""
        self._remove_old(self._now())
        return key in self._entries

    def open_in(self, stream: CallKey) -> list[str]:
        """Return the ids of the entries whose keys differ from a key in their id alone."""
        self._remove_old(self._now())
        return [key[-1] for key in self._streams.get(stream[:-1], ())]

    def take(self, key: CallKey) -> Held | None:
        """Remove and return an entry; None where there is none."""
        self._remove_old(self._now())
        return self._removed(key) if key in self._entries else None

    def _removed(self, key: CallKey) -> Held:
        found = self._entries.pop(key)
        owner, stream = self._owners[key[2]], self._streams[key[:-1]]
        del owner.keys[key], stream[key]
        owner.size -= found.size
        if not owner.keys:
            del self._owners[key[2]]
        if not stream:
            del self._streams[key[:-1]]
        self._kinds[key[0]] -= 1
        self.size -= found.size
        return found.held

    def _remove_old(self, now: float) -> None:
        oldest = now - self._seconds
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.at > oldest:
                return
            self._forget(key, "age")

    def _forget(self, key: CallKey, bound: str) -> None:
        """Remove an entry that has no answer."""
        self._metrics.count(CALLS_FORGOTTEN, bound)
        self._removed(key)


def text_size(value: Json) -> int:
    """Return the bytes that a JSON value holds, roughly."""
    size = 0
    for item in parts_of(value):
        size += _ITEM
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            size += sum(map(len, item))
    return size


KIND: Final = "i"
CALL_SECONDS: Final = 6 * 3600
TOKEN_SECONDS: Final = 3600
TEXT_LIMIT: Final = 1024 * 1024
"""Bytes of a call as it is kept; of a larger one the arguments are left out, and what its result
repeats of them counts as the result's."""
_READ_LIMIT: Final = 64 * 1024 * 1024
_TOKENS: Final = "tokens"
_RECORDS: Final = {
    found.__name__: found
    for found in (
        *(Attestation, Context, Destination, Evidence, Identity, LabelRecord, LabelSet, LabelWrite),
        *(ActionAttestation, ErrandCall, ErrandGrant, PrivateText, SavedText, Target),
        *(ToolAnswer, ToolCall, ToolOutline),
    )
}
_ENUMS: Final[dict[str, type[Enum]]] = {
    found.__name__: found
    for found in (
        *(
            ActionRung,
            Channel,
            Cover,
            DestinationStatus,
            Integrity,
            LabelWriteMode,
            PrincipalRung,
            Role,
            Rung,
        ),
        SessionRung,
    )
}
_CLASSIFIED: Final = ("role", "answered")
"""Fields of the classified call that the policy does not say again."""
_TRACED: Final = tuple(one.name for one in fields(TracedCall) if one.name != "classified")


class StoredExchanges:
    """Calls in flight, methods of other requests, and issued tokens, in the store of all guards.

    Args:
        texts: where they are kept.
        seal: the deployment's key.
        policy: gives the policy in force, which says again what a call is.
        metrics: for what could not be kept.
        classified: says what a policy says of a call.
    """

    def __init__(
        self,
        texts: SharedTexts,
        seal: Seal,
        policy: Callable[[], Policy | None],
        metrics: Metrics,
        classified: Callable[[Policy, ToolCall], ClassifiedCall] = classify,
    ) -> None:
        self._texts = texts
        self._seal = seal
        self._policy = policy
        self._metrics = metrics
        self._classified = classified
        self._writes: set[asyncio.Task[None]] = set()
        self._kept: InFlight[None] = InFlight()
        """Calls that this process kept, and that have not been taken as far as it knows."""

    def keep(self, tenant: str, key: CallKey, held: TracedCall | str) -> None:
        """Store a call, or the method of another request, for every process; returns at once."""
        area, name = self._place(tenant, key)
        packed = _packed(held)
        if len(packed) > TEXT_LIMIT and isinstance(held, TracedCall):
            classified = held.classified
            bare = replace(classified, call=replace(classified.call, arguments={}))
            packed = _packed(replace(held, classified=bare))
        text = self._seal.enciphered(area, name, packed)
        self._kept.add(key, None, 0)
        self._write(self._texts.put(tenant, name, text, CALL_SECONDS))

    def forget(self, tenant: str, key: CallKey) -> None:
        """Remove an entry that this process stored and that has been answered."""
        if self._kept.holds(key):
            self._kept.take(key)
            self._write(self._texts.drop(tenant, self._place(tenant, key)[1]))

    async def take(self, tenant: str, key: CallKey) -> TracedCall | str | None:
        """Return and remove an entry of another process; None where there is none."""
        area, name = self._place(tenant, key)
        try:
            raw = await self._texts.take(tenant, name)
            packed = None if raw is None else self._seal.deciphered(area, name, raw)
            return None if packed is None else self._unpacked(packed)
        except (GuardError, ValueError, KeyError, TypeError, zlib.error):
            self._metrics.count(ERRORS, "state")
            return None

    def say(self, tenant: str, upstream: str, token: str) -> None:
        """Store a token that a server issued to its client, for every process; returns at once."""
        if token.startswith("/") or not is_plain(token):
            self._write(self._texts.put(tenant, self._token(upstream, token), b"1", TOKEN_SECONDS))

    async def said(self, tenant: str, upstream: str, tokens: Sequence[str]) -> list[str]:
        """Return which of some tokens the server issued, by way of any process."""
        names = [self._token(upstream, token) for token in tokens]
        try:
            known = await self._texts.known(tenant, names) if names else []
        except GuardError:
            self._metrics.count(ERRORS, "state")
            return []
        return [token for token, is_known in zip(tokens, known, strict=True) if is_known]

    def _write(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._written(work))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _written(self, work: Awaitable[None]) -> None:
        try:
            await work
        except GuardError:
            # Whoever asks for it finds nothing, and withholds what it would have released.
            self._metrics.count(ERRORS, "state")

    async def settled(self) -> None:
        """Wait until everything is written."""
        await asyncio.gather(*self._writes)

    def _place(self, tenant: str, key: CallKey) -> tuple[LabelSet, bytes]:
        return LabelSet(KIND, (tenant, *key[:-1])), self._seal.digest(KIND, *key)

    def _token(self, upstream: str, token: str) -> bytes:
        # One host may have many paths for one session.
        return self._seal.digest(_TOKENS, upstream.partition("/")[0], token)

    def _unpacked(self, packed: bytes) -> TracedCall | str:
        inflated = zlib.decompressobj().decompress(packed, _READ_LIMIT)
        document = _decoded(json.loads(inflated))
        if isinstance(document, str):
            return document
        call, found = document["call"], {name: document[name] for name in _CLASSIFIED}
        policy = self._policy()
        classified = (
            ClassifiedCall(call, found["role"])
            if policy is None
            else self._classified(policy, call)
        )
        traced = {name: document[name] for name in _TRACED}
        return TracedCall(replace(classified, **found), **traced)


def _packed(held: TracedCall | str) -> bytes:
    document: Json = held
    if isinstance(held, TracedCall):
        document = {name: getattr(held, name) for name in _TRACED}
        document |= {name: getattr(held.classified, name) for name in ("call", *_CLASSIFIED)}
    return zlib.compress(json.dumps(_encoded(document), separators=(",", ":")).encode(), 1)


def _encoded(value: Any) -> Json:
    """Return a value of the guard as JSON: containers, and what JSON has no form of, are tagged.

    Lists stand for themselves; an object has one member, whose name is the tag.
    """
    if isinstance(value, Enum):
        return {"e": [type(value).__name__, value.name]}
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple | frozenset):
        found: Json = [_encoded(one) for one in value]
        tag = {tuple: "t", frozenset: "s"}.get(type(value))
        return found if tag is None else {tag: found}
    if is_dataclass(value):
        parts = [getattr(value, one.name) for one in fields(value)]
        return {"r": [type(value).__name__, *(_encoded(one) for one in parts)]}
    return {"m": [[_encoded(name), _encoded(one)] for name, one in value.items()]}


_DECODED: Final[dict[str, Callable[[Any], Any]]] = {
    "e": lambda found: _ENUMS[found[0]][found[1]],
    "b": base64.b64decode,
    "t": lambda found: tuple(map(_decoded, found)),
    "s": lambda found: frozenset(map(_decoded, found)),
    "r": lambda found: _RECORDS[found[0]](*map(_decoded, found[1:])),
    "m": lambda found: {_decoded(name): _decoded(one) for name, one in found},
}


def _decoded(document: Json) -> Any:
    """Return the value that :func:`_encoded` was given.

    Raises:
        ValueError, KeyError, TypeError: it was given none.
    """
    if isinstance(document, list):
        return [_decoded(one) for one in document]
    if isinstance(document, dict):
        [(tag, content)] = document.items()
        return _DECODED[tag](content)
    return document
