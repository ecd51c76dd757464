"""What the staging script answers, as facts for the gate; promotion tokens are checked here."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from guard.core.errors import StateError
from guard.core.memory import MemoryClass, StagedFacts, TokenState, Trust

if TYPE_CHECKING:
    from guard.core.memory import Candidate
    from guard.provenance.seal import Seal

SPENT: Final = 10_000
"""Used promotion tokens that one process remembers."""
_STAGED: Final = 8
"""Values that the staging script answers."""


class TokenReader:
    """Tells tokens that an operator issued from what somebody has written to the store.

    Args:
        seal: the deployment's key.
    """

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        # A token that this process has seen used stays so, whatever is written to the store.
        self._spent: OrderedDict[str, None] = OrderedDict()

    def spend(self, mac: str) -> None:
        """Remember that a token was used."""
        self._spent[mac] = None
        if len(self._spent) > SPENT:
            self._spent.popitem(last=False)

    def read(self, candidate: Candidate, target: MemoryClass, text: str) -> tuple[TokenState, str]:
        """Return the state of a token and its MAC.

        Args:
            candidate: whose content and principal it must be for.
            target: the class it must be for.
            text: state, expiry (ms) and MAC with blanks between; the state alone for no token.
        """
        name, found, rest = text.partition(" ")
        state = TokenState(name)
        if not found:
            return state, ""
        until, _, mac = rest.partition(" ")
        identity = candidate.identity
        if not until.isdigit():
            return TokenState.FORGED, ""
        expected = self._seal.promotion(
            identity.tenant, candidate.digest, target.name, identity.principal, int(until)
        )
        if not hmac.compare_digest(mac.encode(), expected.encode()):
            return TokenState.FORGED, ""
        return (TokenState.USED if mac in self._spent else state), mac


def facts_of(
    candidate: Candidate, lower: MemoryClass, reply: object, tokens: TokenReader
) -> StagedFacts:
    """Return the facts in an answer of the staging script.

    Raises:
        StateError: the answer is unsound, or the candidate's id was used twice.
    """
    if not isinstance(reply, list) or len(reply) != _STAGED or reply[0] != 1:
        msg = "redis did not stage a memory write; an id was used twice or the answer is unsound"
        raise StateError(msg)
    nonce, item = text_of(reply[1]), text_of(reply[2])
    try:
        found = {
            lower: tokens.read(candidate, lower, text_of(reply[5])),
            candidate.target: tokens.read(candidate, candidate.target, text_of(reply[4])),
        }
        return StagedFacts(
            nonce_used=nonce[:1] == "u",
            nonce_digest=nonce[2:] if nonce[:1] == "s" else "",
            item_class=MemoryClass(int(item)) if item else None,
            item_version=int(reply[3]),
            tokens={target: state for target, (state, _) in found.items()},
            token_macs={target: mac for target, (_, mac) in found.items()},
            trust=Trust(reply[7]),
            quarantined=reply[6] != 0,
        )
    except (TypeError, ValueError) as error:
        msg = "redis answered the staging of a memory write with something unsound"
        raise StateError(msg) from error


def text_of(reply: object) -> str:
    """Return a text.

    Raises:
        StateError: it is none.
    """
    if not isinstance(reply, bytes):
        msg = "redis answered the memory gate with something else than text"
        raise StateError(msg)
    return reply.decode("utf-8", "replace")
