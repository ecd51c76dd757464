"""Messages that go out with other arguments than they came with.  Pure: no I/O.

A protocol module writes the message anew; :class:`Rewriting` then reads it as the upstream will,
and takes it only if it says exactly what it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.core.errors import MessageError
from guard.protocols.http.message import REDACTION_FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.base import ProtocolModule
    from guard.protocols.http.message import HttpRequest
    from guard.protocols.messages import Message


class Rewriting:
    """One message that may have to be rewritten; satisfies ``guard.decision.redaction.Rewrite``."""

    def __init__(self, protocol: ProtocolModule, request: HttpRequest, message: Message) -> None:
        self._protocol = protocol
        self._original = request
        self._message = message
        self.request: HttpRequest | None = None
        """What to forward instead, once there is something."""

    def __call__(self, arguments: Sequence[Mapping[str, Json] | None]) -> None:
        """Write the message with other arguments for some of its calls.

        Raises:
            MessageError: it cannot be done exactly.
        """
        calls = self._message.calls
        if any(instead is not None for instead in arguments[len(calls) :]):
            raise MessageError(REDACTION_FAILED, "side content of a message is not rewritten")
        wanted = [
            dict(call.arguments if instead is None else instead)
            for call, instead in zip(calls, arguments[: len(calls)], strict=True)
        ]
        written = self._protocol.rewrite(self._original, wanted)
        read = self._protocol.parse(written)
        if [dict(call.arguments) for call in read.calls] != wanted:
            raise MessageError(REDACTION_FAILED, "the rewritten message says something else")
        self.request = written
