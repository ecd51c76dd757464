"""Requests for a human's approval, and the grants that answer them.  Pure: no I/O.

A grant is for one very call: principal, session, tool, canonical arguments and policy digest.  It
is sealed, it expires, and the store hands it out once.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from guard.core.labels import LabelWrite, LabelWriteMode
from guard.provenance import label_sets

if TYPE_CHECKING:
    from guard.core.model import Json, ToolCall
    from guard.core.policy import Policy
    from guard.provenance.seal import Seal

QUESTION_FIELD: Final = b"q"
GRANT_FIELD: Final = b"g"
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


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
            identity.session,
            call.server,
            call.tool,
            policy.digest,
            dict(call.arguments),
        ]
        return hashlib.blake2b(_CANONICAL.encode(parts).encode(), digest_size=16).hexdigest()

    def request(self, policy: Policy, call: ToolCall) -> LabelWrite:
        """Return the record of a call that is asked about; it has no argument text."""
        identity = call.identity
        body: Json = {
            "digest": self.digest(policy, call),
            "tenant": identity.tenant,
            "principal": identity.principal,
            "session": identity.session,
            "tool": call.tool,
            "policy": policy.digest,
            "expires": call.at + policy.limits.approval,
            "ttl": policy.limits.approval,
        }
        area = label_sets.question(call.id, policy.limits.approval)
        sealed = self._seal.sealed(area, QUESTION_FIELD, json.dumps(body).encode())
        return LabelWrite(area, LabelWriteMode.REPLACE, ((QUESTION_FIELD, sealed),))

    def answer(self, decision_id: str, raw: bytes, at: float) -> tuple[dict[str, Json], LabelWrite]:
        """Return a question's record, and the grant that answers it.

        Raises:
            ValueError: the record was altered, is another decision's, or has expired.
        """
        asked = label_sets.question(decision_id, 1)
        body = self._seal.opened(asked, QUESTION_FIELD, raw)
        if body is None:
            raise ValueError("the record of this decision was altered, or sealed with another key")
        question: dict[str, Json] = json.loads(body)
        if question["expires"] < at:
            raise ValueError("this decision can no longer be approved; have the agent ask again")
        area = label_sets.grant(question["digest"], question["ttl"])
        grant = json.dumps({"expires": at + question["ttl"], "decision": decision_id}).encode()
        sealed = self._seal.sealed(area, GRANT_FIELD, grant)
        return question, LabelWrite(area, LabelWriteMode.REPLACE, ((GRANT_FIELD, sealed),))

    def holds(self, policy: Policy, call: ToolCall, raw: bytes) -> bool:
        """Return whether a grant that was taken is whole and still holds."""
        area = label_sets.grant(self.digest(policy, call), 1)
        body = self._seal.opened(area, GRANT_FIELD, raw)
        return body is not None and bool(json.loads(body)["expires"] >= call.at)
