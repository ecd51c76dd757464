"""Layout of the state in Redis: key names, the packed window, the scripts.

One window (:class:`guard.core.trajectory.Window`) is one Redis string of ``WINDOW_SIZE`` bytes,
big-endian, version byte first.  The same field list gives the Python decoder and the constants
of the Lua scripts, so neither can drift from the other.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from operator import add, le
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from guard.core.errors import StateError
from guard.core.labels import CHANNELS, Channel, LabelSet
from guard.core.model import ROLES, Identity
from guard.core.trajectory import NO_ROLE, PAIRS, Trajectory, Window
from guard.provenance.label_sets import GRANT_KIND, TOLD_LIMIT, UNIT_SIZE, UNITS_KEPT
from guard.provenance.lineage import ID, ID_AT, LIST_FIRST, LIST_LIMIT
from guard.provenance.seal import (
    CHANNEL_BYTE,
    FINGERPRINT,
    LABEL_BYTE,
    NAMES_AT,
    SCOPE_SIZE,
    SCOPED,
    VERSION_BYTE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


WINDOW_VERSION: Final = 1
"""First byte of every window; another version is refused, never guessed at."""

_FIELDS: Final = (
    ("version", "B", 1),
    ("executed", "I", len(ROLES)),
    ("pairs", "I", len(PAIRS)),
    ("first", "B", 1),
    ("last", "B", 1),
    ("recall_chain", "I", 1),
    ("max_recall_chain", "I", 1),
    ("recall_before_send", "B", 1),
    ("save_before_send", "B", 1),
    ("attempted", "I", len(ROLES)),
    ("refused", "I", len(ROLES)),
    ("refused_in_a_row", "I", 1),
    ("unlabelled", "I", 1),
)
"""Name, ``struct`` code and repetitions of each field, in storage order."""

_STEPS: Final = _FIELDS[3:9]
"""The fields that say in which order roles came; none of them is repeated."""

_WINDOW: Final = struct.Struct(">" + "".join(f"{n}{code}" for _, code, n in _FIELDS))
WINDOW_SIZE: Final = _WINDOW.size
"""Bytes of a packed window."""
COUNTER_MAX: Final = 2**32 - 1
"""Maximum value of counters."""

_DIGEST_BYTES: Final = 16
_TENANT_LIMIT: Final = 64
_KEYS_REMEMBERED: Final = 1024
"""Sessions, sets and digests whose key names are kept at hand; each is quick to make again."""


def _offsets(unit: Callable[[str], int]) -> dict[str, int]:
    """Return the zero-based place of each field's first value, counted in units per value."""
    offsets: dict[str, int] = {}
    place = 0
    for name, code, repetitions in _FIELDS:
        offsets[name] = place
        place += repetitions * unit(code)
    return offsets


_AT: Final = _offsets(lambda _: 1)
_BYTE: Final = _offsets(lambda code: struct.calcsize(f">{code}"))
_EXECUTED: Final = slice(_AT["executed"], _AT["executed"] + len(ROLES))
_PAIRS: Final = slice(_AT["pairs"], _AT["pairs"] + len(PAIRS))
_ATTEMPTED: Final = slice(_AT["attempted"], _AT["attempted"] + len(ROLES))
_REFUSED: Final = slice(_AT["refused"], _AT["refused"] + len(ROLES))
_FIRST: Final = _AT["first"]
_TAIL: Final = _AT["refused_in_a_row"]
_BEGINS: Final = {"version": WINDOW_VERSION, "first": NO_ROLE, "last": NO_ROLE}
FRESH_WINDOW: Final = _WINDOW.pack(
    *(_BEGINS.get(name, 0) for name, _, n in _FIELDS for _ in range(n))
)
"""The window of a session or principal that has done nothing, or of which nothing is left."""
_NAME: Final = re.compile(r"\b[A-Z]+(?:_[A-Za-z_]+)?\b")


def decode_window(raw: object) -> Window:
    """Return the window that a script packed.

    Raises:
        StateError: it is not a window of this version, or its counters contradict each other.
    """
    if not isinstance(raw, bytes) or len(raw) != WINDOW_SIZE or raw[0] != WINDOW_VERSION:
        raise StateError("redis answered a window that this version of the guard cannot read")
    values = _WINDOW.unpack(raw)
    executed, attempted, refused = values[_EXECUTED], values[_ATTEMPTED], values[_REFUSED]
    first, last, chain, max_chain, recalled, saved = values[_FIRST : _FIRST + 6]
    sound = (
        first <= NO_ROLE
        and last <= NO_ROLE
        and chain <= max_chain
        and recalled <= 1
        and saved <= 1
        and all(map(le, map(add, executed, refused), attempted))
    )
    if not sound:
        raise StateError("redis answered a window whose counters contradict each other")
    return Window(
        Trajectory(
            executed, values[_PAIRS], first, last, chain, max_chain, bool(recalled), bool(saved)
        ),
        attempted,
        refused,
        values[_TAIL],
        values[_TAIL + 1],
    )


class IdentityKeys(NamedTuple):
    """Stored state of a session and of its principal."""

    session: bytes
    """Window of the session."""
    principal: bytes
    """Window of the principal."""
    full: bytes
    """Mark that a bound of the principal's labels was reached."""
    sources: bytes
    """Number of labels of each source of the principal; the number of a period follows."""
    grants: bytes
    """Grants for very calls; the digest of the call and a colon follow, as in the key of its area.
    """


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names of one namespace.

    Principal and session text is chosen by whoever sends the request, so it enters a name only as
    a digest of fixed length.  The tenant is the hash tag: one call touches one cluster slot.
    """

    namespace: str = "guard"

    def __post_init__(self) -> None:
        if not self.namespace or not set(self.namespace).isdisjoint("{}"):
            raise StateError(f"namespace `{self.namespace}` must be non-empty and without braces")

    def of(self, identity: Identity) -> IdentityKeys:
        """Return the keys of what is kept of a session and its principal."""
        return _identity_keys(self.namespace, identity.tenant, identity.principal, identity.session)

    def areas(self, tenant: str, areas: Sequence[LabelSet]) -> list[bytes]:
        """Return the keys of some sets of label records."""
        return [_area_key(self.namespace, tenant, area) for area in areas]

    def area(self, tenant: str, area: LabelSet) -> bytes:
        """Return the key of one set of label records."""
        return _area_key(self.namespace, tenant, area)


@lru_cache(maxsize=_KEYS_REMEMBERED)
def _identity_keys(namespace: str, tenant: str, principal: str, session: str) -> IdentityKeys:
    prefix = f"{namespace}:{{{tenant_tag(tenant)}}}:"
    in_session = digest(b"session", principal, session)
    of_principal = digest(b"principal", principal)
    return IdentityKeys(
        f"{prefix}s:{in_session}".encode(),
        f"{prefix}p:{of_principal}".encode(),
        _owner_key(namespace, tenant, "f", (principal,)),
        _owner_key(namespace, tenant, "c", (principal,)),
        f"{prefix}{GRANT_KIND}:".encode(),
    )


@lru_cache(maxsize=4 * _KEYS_REMEMBERED)
def _area_key(namespace: str, tenant: str, area: LabelSet) -> bytes:
    return _owner_key(namespace, tenant, area.kind, area.owner) + area.part.encode()


@lru_cache(maxsize=_KEYS_REMEMBERED)
def _owner_key(namespace: str, tenant: str, kind: str, owner: tuple[str, ...]) -> bytes:
    """Return how the keys of one kind of set of one owner begin; the part of the set ends them."""
    # What names a call is a digest as it is.
    name = owner[0] if kind == GRANT_KIND else digest(b"area", kind, *owner)
    return f"{namespace}:{{{tenant_tag(tenant)}}}:{kind}:{name}:".encode()


@lru_cache(maxsize=_KEYS_REMEMBERED)
def tenant_tag(tenant: str) -> str:
    """Return the tenant as a hash tag: injective, bounded, without braces."""
    quoted = quote(tenant, safe="", errors="surrogatepass")
    if len(quoted) <= _TENANT_LIMIT:
        return f"t:{quoted}"
    return f"d:{digest(b'tenant', tenant)}"


@lru_cache(maxsize=_KEYS_REMEMBERED)
def digest(purpose: bytes, *parts: str) -> str:
    """Return the hex digest of some texts; each is length-prefixed so that none can run over."""
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES, person=purpose)
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        state.update(len(text).to_bytes(8, "big") + text)
    return state.hexdigest()


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, whole, with the digest that EVALSHA names it by."""

    name: str
    text: str
    sha: str
    """Hex sha1, as Redis computes it."""


_PARTS: Final = {
    "attempt": ("window", "attempt"),
    "complete": ("window", "labels", "complete"),
    "note": ("labels", "note"),
    "settle": ("trust", "drift", "settle"),
    "stage": ("trust", "stage"),
    "commit": ("trust", "commit"),
    "refuse": ("trust", "refuse"),
    "level": ("trust", "level"),
}
"""Scripts of more than one file.  Redis runs all of a script on every call, so each gets no more
than it needs."""


@lru_cache
def load_script(name: str) -> Script:
    """Return a script of ``scripts/`` behind the layout constants and the parts it needs."""
    folder = files("guard.store").joinpath("scripts")
    names_of_parts = _PARTS.get(name, (name,))
    parts = [folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in names_of_parts]
    names = set(_NAME.findall("\n".join(parts)))
    constants = [f"local {key} = {value}" for key, value in _constants().items() if key in names]
    text = "\n".join((*constants, *parts))
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _constants() -> dict[str, str]:
    """Return the layout as Lua constants.  Lua counts from one, roles stay zero-based offsets."""
    codes = {"B": "B", "I": "I4"}
    pairs = "".join(f"\\{ROLES.index(b) * len(ROLES) + ROLES.index(a):03d}" for b, a in PAIRS)
    return {
        "VERSION": str(WINDOW_VERSION),
        "SIZE": str(WINDOW_SIZE),
        "FRESH": "'" + "".join(f"\\{byte:03d}" for byte in FRESH_WINDOW) + "'",
        "STEPS": "'>" + "".join(codes[code] for _, code, _ in _STEPS) + "'",
        "NO_ROLE": str(NO_ROLE),
        "ROLES": str(len(ROLES)),
        "PAIRS": f"'{pairs}'",
        "NAMES_AT": str(NAMES_AT),
        "NAME_SIZE": str(FINGERPRINT),
        "VERSION_BYTE": str(VERSION_BYTE),
        "SCOPED": str(SCOPED),
        "SCOPE_SIZE": str(SCOPE_SIZE),
        "LABEL_BYTE": str(LABEL_BYTE),
        "CHANNEL_BYTE": str(CHANNEL_BYTE),
        "COUNTERPARTY": str(CHANNELS.index(Channel.COUNTERPARTY)),
        "ID": str(ID),
        "ID_AT": str(ID_AT),
        "LIST_FIRST": str(LIST_FIRST),
        "LIST_LIMIT": str(LIST_LIMIT),
        "TOLD_LIMIT": str(TOLD_LIMIT),
        "UNITS_KEPT": str(UNITS_KEPT),
        "UNIT_SIZE": str(UNIT_SIZE),
        **{f"ROLE_{role.value}": str(index) for index, role in enumerate(ROLES)},
        **{f"BYTE_{name}": str(place + 1) for name, place in _BYTE.items()},
    }
