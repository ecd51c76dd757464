"""A request that was forwarded, until its answer is complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guard.core.model import SessionRung

if TYPE_CHECKING:
    from guard.core.calls import TracedCall
    from guard.enforcement.model_answers import Origin
    from guard.protocols.base import ProtocolModule
    from guard.protocols.http.message import HttpRequest
    from guard.protocols.llm.model_answers import AnswerReader


@dataclass(slots=True)
class Exchange:
    """What is known of a request while its answer comes.  Not frozen: the answer changes it."""

    protocol: ProtocolModule | None
    server: str
    owner: tuple[str, str] = ("", "")
    """Principal and session: a JSON-RPC id is unique within them and nowhere else."""
    calls: dict[str | None, TracedCall] = field(default_factory=dict)
    """Calls still without a result, by correlation."""
    is_write: bool = False
    """Whether every call of it is a committed memory write: it may carry the write credential."""
    instead: HttpRequest | None = None
    """The redacted request, where that is what is forwarded."""
    origin: Origin | None = None
    reader: AnswerReader | None = None
    """Reads an answer that may carry calls; such an answer is judged before it is released."""
    upstream: str = ""
    """The server it went to, as definitions are pinned; empty where none are."""
    streams: bool = False
    """Whether an event of its answer has been read."""

    def join(self, name: str, data: str) -> None:
        """Take from a stream's event where the client will post, and as which session.

        Only a stream that is known by its connection takes the session that its server names.
        """
        if self.protocol is None or self.origin is None:
            return
        path = self.protocol.upstream_of_event(name, data)
        if path is not None:
            self.upstream = self.upstream.partition("/")[0] + path
        session = self.protocol.session_of_event(name, data)
        if session and self.origin.identity.session_rung <= SessionRung.TRACEPARENT:
            self.owner = (self.owner[0], session)
