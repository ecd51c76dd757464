"""Names of the memory gate's keys in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.adapters.redis.layout import digest, tenant_tag
from guard.provenance.senders import source_mark

if TYPE_CHECKING:
    from guard.core.memory import MemoryClass


class MemoryKeys:
    """Key names of the memory gate; whatever a client chose enters them as a digest only.

    Args:
        namespace: first part of every key.
        tenant: of the principal; all keys of one candidate are in one hash slot.
    """

    def __init__(self, namespace: str, tenant: str) -> None:
        self.prefix = f"{namespace}:{{{tenant_tag(tenant)}}}:m:"

    def candidate(self, identifier: str) -> str:
        """Return the key of a candidate's record."""
        return f"{self.prefix}c:{digest(b'candidate', identifier)}"

    def nonce(self, principal: str, nonce: str) -> str:
        """Return the key of a nonce; nonces of two principals never meet."""
        return f"{self.prefix}n:{digest(b'nonce', principal, nonce)}"

    def item(self, store: str, partition: str, key: str) -> str:
        """Return the key of what is known of a committed item."""
        return f"{self.prefix}i:{digest(b'item', store, partition, key)}"

    def binding(self, content: str, target: MemoryClass, principal: str) -> str:
        """Return the key of the token for a content, a class and a principal."""
        return f"{self.prefix}k:{digest(b'binding', content, target.name, principal)}"

    def token(self, secret: str) -> str:
        """Return the key of a token by its secret."""
        return f"{self.prefix}t:{digest(b'token', secret)}"

    def trust(self, kind: str, name: str) -> str:
        """Return the key of the trust in a ``principal`` or a ``source``."""
        if kind == "source":
            return self.source(source_mark(name))
        return f"{self.prefix}trust:{kind}:{digest(b'trust', kind, name)}"

    def source(self, mark: bytes) -> str:
        """Return the key of the trust in a source by its mark."""
        return f"{self.prefix}trust:source:{mark.hex()}"

    def sources(self, principal: str, session: str) -> str:
        """Return the key of the sources that a session has read from."""
        return f"{self.prefix}r:{digest(b'sources', principal, session)}"

    def quarantine(self, store: str, partition: str) -> str:
        """Return the key of a partition's quarantine."""
        return f"{self.prefix}q:{digest(b'partition', store, partition)}"

    def drift(self, principal: str) -> str:
        """Return the key of what a principal's committed items say."""
        return f"{self.prefix}d:{digest(b'drift', principal)}"

    @property
    def findings(self) -> str:
        """Return the key of the drift findings."""
        return f"{self.prefix}drift"

    @property
    def in_flight(self) -> str:
        """Return the key of the committed candidates without an answer."""
        return f"{self.prefix}inflight"

    @property
    def review(self) -> str:
        """Return the key of the candidates that a person may want to see."""
        return f"{self.prefix}review"
