"""Parts that the handlers of one guard share, and the options of an enforcement point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from guard.core.calls import TracedCall
    from guard.core.metrics import Metrics
    from guard.core.ports import AnswerFeed, AuditLog, Clock
    from guard.pipeline.admission import Admission, Limits
    from guard.pipeline.declarations import DeclarationHandler
    from guard.pipeline.elicitation import Elicitor
    from guard.pipeline.exchange import IssuedTokens, ParseFailures
    from guard.pipeline.guard import Guard
    from guard.pipeline.holding import Holding
    from guard.pipeline.in_flight import InFlight, StoredExchanges

BODY_LIMIT: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Audit log, metrics and clock of one guard."""

    audit: AuditLog
    metrics: Metrics
    clock: Clock


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of an enforcement point."""

    body_limit: int = BODY_LIMIT
    """Maximum size of a body, of one event of a stream, and of one held call, in bytes."""
    model_apis: Collection[str] = ()
    """Hosts (``host`` or ``host:port``) that the operator declared as model APIs."""
    limits: Limits | None = None
    """Number of requests that are judged at once; without it any number."""


@dataclass(frozen=True, slots=True)
class People:
    """Ways to ask people, and to receive their answers."""

    answers: AnswerFeed | None = None
    """Feed of people's answers; without it nothing is held open."""
    elicitor: Elicitor | None = None
    """Asks the people at MCP clients; None with ``answers``."""


@dataclass(frozen=True, slots=True)
class HandlerParts:
    """Parts that the handlers of requests, answers and WebSockets share."""

    guard: Guard
    """Judges calls and observes results."""
    clock: Clock
    metrics: Metrics
    failures: ParseFailures
    """Record of messages that could not be read one way only."""
    in_flight: InFlight[TracedCall]
    """Forwarded calls whose results may arrive in another exchange."""
    plain: InFlight[str]
    """Methods of forwarded requests that are not calls."""
    issued: IssuedTokens
    """Tokens that servers gave their clients to repeat."""
    shared: StoredExchanges | None
    """Exchanges of other processes; None where there are none."""
    holding: Holding | None
    """Requests held open for a person's answer; None: they are refused at once."""
    elicitor: Elicitor | None
    """Asks the people at MCP clients; None without ``holding``."""
    admission: Admission
    """Number of requests that are judged at once."""
    declarations: DeclarationHandler | None
    """Pins and labels of server declarations; None where no pins are kept."""
    body_limit: int
    """Maximum size of one event, and of one call, in bytes."""
