"""An answer that reaches its client event by event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.pep.lean.messages import AnswerReader, RequestRead, chunk_bytes, head_bytes, without
from guard.protocols.http.message import HOP

if TYPE_CHECKING:
    from guard.pep.lean.connections import ClientConnection, UpstreamConnection
    from guard.pep.lean.upstream_requests import UpstreamRequest
    from guard.pipeline.response import EventReader

ANSWER_FRAMED: Final = HOP | {b"content-length", b"upgrade"}
"""Fields of an answer that belong to one hop."""


@dataclass(frozen=True, slots=True)
class EventStream:
    """An answer that is released event by event."""

    client: ClientConnection
    request: RequestRead
    asked: UpstreamRequest
    upstream: UpstreamConnection
    answer: AnswerReader
    reader: EventReader | None
    """None where nothing was read of the request either (monitor mode)."""

    async def begin(self) -> None:
        """Send the head, unless the guard has begun the stream itself."""
        if self.client.opened:
            self.client.opened = False
            return
        dropped = ANSWER_FRAMED
        if self.reader is not None:
            dropped |= {b"content-encoding"}
        fields = without(self.answer.fields, dropped.__contains__)
        self.client.chunked = self.request.is_http11
        if self.request.is_http11:
            fields.append((b"Transfer-Encoding", b"chunked"))
        fields += connection_fields(self.request, self.answer, keeps=self._keeps)
        reason = self.answer.reason.decode("latin-1")
        self.client.answering = True
        await self.client.write(head_bytes(f"HTTP/1.1 {self.answer.status} {reason}", fields))

    async def write(self, data: bytes) -> None:
        """Send some of the body."""
        if data:
            await self.client.write(self.client.framed(data))

    async def end(self) -> bool:
        """End the body; return whether the connection may carry another request."""
        if self.request.is_http11:
            await self.client.write(chunk_bytes(b""))
        return self._keeps

    @property
    def _keeps(self) -> bool:
        return self.request.is_http11 and self.request.keeps_alive


def connection_fields(
    request: RequestRead | None, answer: AnswerReader | None, *, keeps: bool
) -> list[tuple[bytes, bytes]]:
    """Return the ``Connection`` field of an answer."""
    if not keeps:
        return [(b"Connection", b"close")]
    # HTTP/1.1 need not say so; it does where the server did, so that clients see no difference.
    says = answer is not None and [one.lower() for one in answer.all("connection")]
    if request is None or (request.is_http11 and says != ["keep-alive"]):
        return []
    return [(b"Connection", b"keep-alive")]
