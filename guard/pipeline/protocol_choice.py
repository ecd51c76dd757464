"""The protocol of a request, and the wording of refusals without a protocol of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from guard.pipeline.active_policies import ActivePolicies
    from guard.protocols.base import ProtocolModule
    from guard.protocols.http.message import HttpReply, HttpRequest
    from guard.protocols.messages import Message
    from guard.protocols.refusals import Refusal

_UNDECLARED: Final = (
    "if this host is a model API, the operator declares it: `guard run --model-api {host}`"
)


class ProtocolChoice:
    """Chooses the one protocol that reads a request.

    Args:
        protocols: every wire format, one of them the fallback.
        policies: the policy in force declares plain HTTP tools.
        model_apis: hosts (``host`` or ``host:port``) that the operator declared as model APIs.
    """

    def __init__(
        self,
        protocols: Sequence[ProtocolModule],
        policies: ActivePolicies,
        model_apis: Collection[str],
    ) -> None:
        self._protocols = [p for p in protocols if not p.is_fallback]
        self.fallback = next(p for p in protocols if p.is_fallback)
        """Protocol of plain requests."""
        self._policies = policies
        self._model_apis = frozenset(name.lower() for name in model_apis)

    def of(self, request: HttpRequest) -> ProtocolModule:
        """Return the protocol of a request.

        Raises:
            MessageError: two claim it.
        """
        host, policy = request.host.lower(), self._policies.policy
        speaks_model = not self._model_apis.isdisjoint({host, host.rpartition(":")[0]})
        found: ProtocolModule | None = None
        for protocol in self._protocols:
            if protocol.needs and getattr(policy, protocol.needs, None) is None:
                continue
            if (speaks_model or not protocol.model_api) and protocol.matches(request):
                if found is not None:
                    raise MessageError("two_protocols", "two protocols claim this request")
                found = protocol
        return found or self.fallback

    def refuse_whole(
        self, protocol: ProtocolModule, message: Message, refusals: Sequence[Refusal | None]
    ) -> HttpReply:
        """Word the refusal of a message for its side content."""
        [refusal] = refusals
        whole = None if refusal is None else protocol.refuse_whole(message, refusal)
        return whole or self.fallback.refuse(message, refusals)

    def refuse_plain(
        self, request: HttpRequest, message: Message, refusals: Sequence[Refusal | None]
    ) -> HttpReply:
        """Word the refusal of a plain request; for a model's client, in its vendor's shape."""
        for model in self._protocols:
            if model.model_api and model.matches(request):
                hint = _UNDECLARED.format(host=request.host)
                return model.refuse(message, [r and replace(r, hint=hint) for r in refusals])
        return self.fallback.refuse(message, refusals)
