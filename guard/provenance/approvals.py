"""Requests for a human's approval, and the grants that answer them.  Pure: no I/O.

A grant is for one very call: principal and how it was proved, session where the client did not
choose its id, listener, upstream, tool, protocol, canonical arguments, the rest of the request that
means something, and policy digest.  It is sealed, it expires, and the store hands it out once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.labels import LabelWrite, LabelWriteMode
from guard.core.model import SessionRung
from guard.provenance import label_sets

if TYPE_CHECKING:
    from guard.core.calls import TracedCall
    from guard.core.model import Json, ToolCall
    from guard.core.policy import Policy
    from guard.provenance.seal import Seal

QUESTION_FIELD: Final = b"q"
GRANT_FIELD: Final = b"g"
RECEIVERS_SHOWN: Final = 20
EXCERPT: Final = 400
"""Receivers, and characters of a text, that a person is shown of a call."""
_GIVEN: Final = frozenset({SessionRung.MCP_SESSION, SessionRung.RECORDED})
"""How session ids are learnt that a client does not make up: a retry after a reconnection has
another of any other kind."""
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Grant:
    """A human's leave for one very call."""

    remember: float = 0.0
    """For how many seconds the principal may send to its receivers again with this tool."""


class Approvals:
    """Writes questions, turns them into grants, and checks grants.

    Args:
        seal: the deployment's key.
    """

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def digest(self, policy: Policy, call: ToolCall) -> str:
        """Return the digest of one very call under one policy, in hex."""
        identity = call.identity
        parts = [
            identity.tenant,
            identity.principal,
            int(identity.principal_rung),
            identity.session if identity.session_rung in _GIVEN else "",
            call.server,
            call.upstream,
            call.tool,
            call.protocol,
            call.context,
            policy.digest,
            dict(call.arguments),
        ]
        return hashlib.blake2b(_CANONICAL.encode(parts).encode(), digest_size=16).hexdigest()

    def request(self, policy: Policy, traced: TracedCall) -> LabelWrite:
        """Return the record of a call that is asked about, enciphered with the deployment's key."""
        call = traced.call
        identity = call.identity
        receivers: list[Json] = []
        for target in traced.targets[:RECEIVERS_SHOWN]:
            rung = target.attestation.rung.name.lower() if target.attestation else ""
            destination = target.destination
            receivers.append([destination.kind, destination.canonical[:EXCERPT], rung])
        body: Json = {
            "digest": self.digest(policy, call),
            "tenant": identity.tenant,
            "principal": identity.principal,
            "session": identity.session,
            "decision": call.id,
            "server": call.server,
            "upstream": call.upstream,
            "tool": call.tool,
            "receivers": receivers,
            "excerpt": _CANONICAL.encode(dict(call.arguments))[:EXCERPT],
            "policy": policy.digest,
            "expires": call.at + policy.limits.approval,
            "ttl": policy.limits.approval,
        }
        area = label_sets.question(call.id, policy.limits.approval)
        sealed = self._seal.enciphered(area, QUESTION_FIELD, json.dumps(body).encode())
        return LabelWrite(area, LabelWriteMode.REPLACE, ((QUESTION_FIELD, sealed),))

    def question(self, decision_id: str, raw: bytes) -> dict[str, Json]:
        """Return what a record says is asked.

        Raises:
            ValueError: it was altered, or is another decision's.
        """
        asked = label_sets.question(decision_id, 1)
        body = self._seal.deciphered(asked, QUESTION_FIELD, raw)
        if body is None:
            raise ValueError("the record of this decision was altered, or sealed with another key")
        found: dict[str, Json] = json.loads(body)
        return found

    def answer(
        self, decision_id: str, raw: bytes, at: float, remember: float = 0.0
    ) -> tuple[dict[str, Json], LabelWrite]:
        """Return a question's record, and the grant that answers it.

        Args:
            decision_id: of the call that was asked about.
            raw: the record, as the store holds it.
            at: now.
            remember: for how many seconds this principal may send to its receivers again with this
                tool, unasked; 0 for this one call.

        Raises:
            ValueError: the record was altered, is another decision's, or has expired.
        """
        question = self.question(decision_id, raw)
        if question["expires"] < at:
            raise ValueError("this decision can no longer be approved; have the agent ask again")
        area = label_sets.grant(question["digest"], question["ttl"])
        grant = {"expires": at + question["ttl"], "decision": decision_id, "remember": remember}
        sealed = self._seal.sealed(area, GRANT_FIELD, json.dumps(grant).encode())
        return question, LabelWrite(area, LabelWriteMode.REPLACE, ((GRANT_FIELD, sealed),))

    def grant(self, policy: Policy, call: ToolCall, raw: bytes) -> Grant | None:
        """Return a grant that was taken, None where it is not whole or holds no longer."""
        area = label_sets.grant(self.digest(policy, call), 1)
        body = self._seal.opened(area, GRANT_FIELD, raw)
        document = {} if body is None else json.loads(body)
        if document.get("expires", 0.0) < call.at:
            return None
        return Grant(float(document.get("remember", 0.0)))
