"""Access to the console: signing in, sessions, rate limits.

A person signs in with the link that is printed at the start (this machine's operator, every role)
or with a secret of the people file; the API accepts the secret as a bearer token.  Sessions are in
this process only: a restart signs everybody out.  All times are monotonic, so a clock change does
not end or prolong a session.
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.operations.deployment import Person, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SESSION_SECONDS: Final = 12 * 3600
IDLE_SECONDS: Final = 2 * 3600
LINK_SECONDS: Final = 15 * 60
"""Lifetime of the printed link, which works once."""
COOKIE: Final = "guard_console"
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SESSIONS: Final = 1000
TRIES: Final = 10
"""Maximum number of attempts to sign in from one address, then per minute."""
ACTS: Final = 120
"""Maximum number of acts of one person, then per minute."""
READS: Final = 1200
"""Maximum number of requests of one person, then per minute."""
_CLIENTS: Final = 10_000


@dataclass(slots=True)
class SignedIn:
    """Session of a browser."""

    person: Person
    csrf: str
    since: float
    seen: float
    certificate: bytes = b""
    """SHA-256 of the certificate of the session; the session works with this certificate only."""


class Limiter:
    """Token buckets by key: a burst of ``size``, then ``size`` a minute."""

    def __init__(self, size: int, now: Callable[[], float]) -> None:
        self._size = size
        self._now = now
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, key: str) -> bool:
        """Take one token; return whether there was one."""
        at = self._now()
        left, since = self._left.pop(key, (float(self._size), at))
        left = min(self._size, left + (at - since) * self._size / 60)
        self._left[key] = (max(0.0, left - 1), at)
        while len(self._left) > _CLIENTS:
            self._left.popitem(last=False)
        return left >= 1


@dataclass(slots=True)
class Access:
    """Signs people in.

    Args:
        people: by the SHA-256 of each person's secret, in hex.
        now: monotonic seconds.
    """

    people: Mapping[str, Person]
    now: Callable[[], float]
    _sessions: OrderedDict[bytes, SignedIn] = field(default_factory=OrderedDict)
    _link: tuple[bytes, float] | None = None
    _machine: bytes = b""

    def link(self) -> str:
        """Return a secret that signs this machine's operator in, once."""
        secret = secrets.token_urlsafe(32)
        self._link = (digest_of(secret), self.now() + LINK_SECONDS)
        return secret

    def machine_secret(self) -> str:
        """Return a bearer for this machine's operator, good as long as the process lives."""
        secret = secrets.token_urlsafe(32)
        self._machine = digest_of(secret)
        return secret

    def redeem(self, secret: str) -> Person | None:
        """Return whose secret it is, a person's or a link's, which is used up."""
        digest = digest_of(secret)
        link = self._link
        if link is not None and hmac.compare_digest(digest, link[0]):
            self._link = None
            if self.now() <= link[1]:
                return Person(getpass.getuser(), frozenset({Role.ADMIN}), "link")
        return self.bearer(secret)

    def bearer(self, secret: str) -> Person | None:
        """Return the person whose secret this is."""
        digest = digest_of(secret)
        if self._machine and hmac.compare_digest(digest, self._machine):
            return Person(getpass.getuser(), frozenset({Role.ADMIN}), "machine")
        return self.people.get(digest.hex())

    def sign_in(self, person: Person, certificate: bytes = b"") -> str:
        """Begin a session; return its token, of which only the digest is kept.

        Args:
            person: who has proved to be so.
            certificate: by which, in DER; the session is then good with it alone.
        """
        token, at = secrets.token_urlsafe(32), self.now()
        shown = hashlib.sha256(certificate).digest() if certificate else b""
        begun = SignedIn(person, secrets.token_urlsafe(32), at, at, shown)
        self._sessions[digest_of(token)] = begun
        while len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        return token

    def session(self, token: str, certificate: bytes = b"") -> SignedIn | None:
        """Return the session of a cookie, None where it has ended or is another certificate's."""
        digest, at = digest_of(token), self.now()
        found = self._sessions.get(digest)
        if found is None:
            return None
        if at - found.since > SESSION_SECONDS or at - found.seen > IDLE_SECONDS:
            del self._sessions[digest]
            return None
        if found.certificate and found.certificate != hashlib.sha256(certificate).digest():
            return None
        found.seen = at
        return found

    def sign_out(self, token: str) -> None:
        """End a session."""
        self._sessions.pop(digest_of(token), None)


def digest_of(secret: str) -> bytes:
    """Return the digest by which a secret is known."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def is_private_in_transit(url: str) -> bool:
    """Return whether a URL has a host and encrypts, or stays on this machine."""
    parts = urlsplit(url)
    return bool(parts.hostname) and (parts.scheme == "https" or parts.hostname in LOOPBACK)
