"""A staged candidate as the fields of its record in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guard.core.memory import Candidate


def record_of(candidate: Candidate, receipt: str) -> list[str]:
    """Return field and value pairs; what is too large is refused by its size and not kept."""
    fields = {
        "id": candidate.id,
        "principal": candidate.identity.principal,
        "session": candidate.identity.session,
        "tool": candidate.tool,
        "server": candidate.server,
        "store": candidate.store,
        "partition": candidate.partition,
        "key": candidate.key,
        "target": candidate.target.name,
        "digest": candidate.digest,
        "text_digest": candidate.text_digest,
        "receipt": receipt,
        "sources": ",".join(sorted(kind.value for kind in candidate.evidence.types)),
        # A candidate that is too large is refused by its size; there is nothing to review in it.
        "content": "" if candidate.problems else candidate.content,
    }
    return [part for field in fields.items() for part in field]
