"""Base class of the wire formats, :class:`ProtocolModule`, and discovery of its modules.

A protocol module turns one HTTP request into tool calls exactly once (hop 2), words a refusal so
that the client can act on it (hop 7), and finds tool results in what comes back.  A request that
two modules match, or that its one match cannot read one way only, is refused.

Adding a wire format is one new file in this package that defines a :class:`ProtocolModule`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

import guard.protocols
from guard.core.discovery import classes_in
from guard.core.errors import MessageError
from guard.protocols.messages import Message, ParsedResult
from guard.protocols.refusals import Refusal, observation, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from guard.core.declarations import Declaration
    from guard.core.model import Json
    from guard.core.policy import Policy
    from guard.protocols.http.message import HttpReply, HttpRequest
    from guard.protocols.llm.model_answers import AnswerReader


def _no_policy() -> None:
    return None


@dataclass(frozen=True, slots=True)
class ProtocolResources:
    """Resources for the construction of a protocol module."""

    policy: Callable[[], Policy | None] = _no_policy
    """Gives the policy in force: it may name requests that are calls of tools."""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    """Path of the MCP endpoint behind a listener, by its port, where the operator declared one."""


class ProtocolModule(ABC):
    """One wire format."""

    name: ClassVar[str]
    is_fallback: ClassVar[bool] = False
    """True for the one module that takes what no other matches."""
    names_hosts: ClassVar[bool] = False
    """True if it matches requests only to hosts that the operator has named."""
    model_api: ClassVar[bool] = False
    """True for a module whose requests carry no call of their own.  It is asked only about hosts
    that the operator declared as model APIs: a path alone (many tools have a ``/v1/messages``)
    must not turn a send into a conversation."""
    needs: ClassVar[str] = ""
    """The attribute of the policy without which no request matches; empty where there is none."""
    event_names: ClassVar[frozenset[str]] = frozenset()
    """Names of the server-sent events that carry its messages; such an event that cannot be read
    one way only ends the stream."""
    answers_by_id: ClassVar[bool] = False
    """True if an answer names its request; an answer without an open request is withheld."""

    @classmethod
    def create(cls, resources: ProtocolResources) -> Self:
        """Return the module, ready to be asked.  Most need nothing."""
        return cls()

    @abstractmethod
    def matches(self, request: HttpRequest) -> bool:
        """Return whether the request is of this format, however broken."""

    @abstractmethod
    def parse(self, request: HttpRequest) -> Message:
        """Read the request.

        Raises:
            MessageError: it cannot be read one way only.
        """

    @abstractmethod
    def refuse(self, message: Message, refusals: Sequence[Refusal | None]) -> HttpReply:
        """Return the answer to a message that is not forwarded.

        Args:
            message: the message as parsed.
            refusals: one entry per call of the message, None for a call that by itself would
                have been forwarded.
        """

    def refuse_whole(self, message: Message, refusal: Refusal) -> HttpReply | None:
        """Return the answer to a message that is refused for its side content.

        None: it is answered as plain HTTP.
        """
        return None

    @abstractmethod
    def unreadable(
        self, error: MessageError, decision_id: str, request: HttpRequest | None = None
    ) -> HttpReply:
        """Return the answer to a request that was refused without being judged.

        Args:
            error: why.
            decision_id: of its audit line.
            request: the request as far as it is known: what of it names the answer's place may be
                read leniently, since nothing of it is forwarded.
        """

    def answered_in(self, request: HttpRequest) -> str:
        """Return the session of the event stream in which a request is answered, if in any."""
        return ""

    def reads_events(self, request: HttpRequest) -> bool:
        """Return whether the client of a request reads its answer as a stream of events."""
        return False

    def cancels(self, message: Message) -> Collection[str]:
        """Return the correlations of requests that a message says nobody waits for any more."""
        return ()

    def still_waits(self, message: Message, number: int) -> Sequence[bytes]:
        """Return messages that tell a client that its request still waits for an approval.

        Args:
            message: the request as parsed.
            number: how often it has been told, from 1 on.
        """
        return ()

    def lost(
        self, correlations: Mapping[str, bool], error: MessageError, decision_id: str
    ) -> Sequence[Json]:
        """Return the messages that end requests whose answers will not come, for an open stream.

        Args:
            correlations: of each request, and whether it is a call.
            error: why.
            decision_id: of its audit line.
        """
        return ()

    def rewrite(self, request: HttpRequest, arguments: Sequence[Mapping[str, Json]]) -> HttpRequest:
        """Return a request that has been read, with these arguments in its calls, in their order.

        Raises:
            MessageError: it cannot be done exactly; nothing is forwarded then.
        """
        raise MessageError("redaction_failed", "messages of this kind are not rewritten")

    def answer_reader(self, message: Message) -> AnswerReader | None:
        """Return what reads the answer where it may carry calls; only ``model_api`` is asked."""
        return None

    def results(self, content: Json) -> Sequence[ParsedResult]:
        """Return the results in one answer body, or in one event of a streamed answer.

        Args:
            content: the parsed JSON where the body is JSON, else its text.
        """
        return (ParsedResult(None, content),)

    def is_endpoint(self, request: HttpRequest) -> bool:
        """Return whether path and query are those of an endpoint that speaks this format.

        Elsewhere the message is a plain request to its URL as well, and judged as one.
        """
        return True

    def upstream(self, request: HttpRequest) -> str:
        """Return the name of the server whose tools a request reaches, as definitions are pinned.

        Empty where servers of this protocol do not define tools.
        """
        return ""

    def upstream_of_event(self, name: str, data: str) -> str | None:
        """Return the path by which a stream's event says the server will be known."""
        return None

    def declarations(self, content: Json) -> Sequence[Declaration]:
        """Return the server's declarations in an answer, or in one event of it: listings,
        instructions, its own requests.
        """
        return ()

    def without_declarations(self, content: Json, withholds: Callable[[str, Json], bool]) -> Json:
        """Return an answer without the declarations that are withheld.

        Args:
            content: as given to :meth:`declarations`.
            withholds: says of a method and an entry of its listing whether it is left out.

        Returns:
            None where nothing is left out.
        """
        return None

    def unlisted(self, result: ParsedResult) -> Json:
        """Return what an answer to a request that is not a call says besides its declarations."""
        return result.content

    def is_bare_result(self, content: Json) -> bool:
        """Return whether an answer is the result of a call and has nothing besides to tell of.

        INVARIANT (cheap test): of such an answer there are no declarations, nothing is withheld
        from it as one, and nothing is said that the client will repeat.
        """
        return False

    def said(self, content: Json) -> Sequence[str]:
        """Return the tokens that an answer issues: cursors, ids of tasks, request states."""
        return ()

    def asked(self, content: Json) -> Sequence[str]:
        """Return the marks of what a server asks its client, which the client may then answer."""
        return ()

    def session_of_event(self, name: str, data: str) -> str | None:
        """Return the session id by which a stream's event says later requests will be known."""
        return None

    def task_of(self, content: Json) -> str | None:
        """Return the task that a result only announces or reports on; None where it is a result."""
        return None

    def withhold(self, content: Json, refusals: Mapping[str | None, Refusal]) -> Json:
        """Return an answer body, or event, with the results that are withheld replaced.

        Args:
            content: as given to :meth:`results`.
            refusals: what the agent is told instead, by correlation.
        """
        fields = observation(next(iter(refusals.values())))
        return {"withheld": True, "detail": sentence(fields), "guard": fields}


def discover_protocols(resources: ProtocolResources | None = None) -> tuple[ProtocolModule, ...]:
    """Import every module of this package and return one instance of each protocol in it."""
    resources = resources or ProtocolResources()
    found: dict[str, ProtocolModule] = {}
    for item in classes_in("guard.protocols", guard.protocols.__path__, ProtocolModule):
        if not hasattr(item, "name"):
            continue  # The base of others.
        if item.answer_reader is not ProtocolModule.answer_reader and not item.model_api:
            raise TypeError(f"protocol `{item.name}` reads answers and does not say `model_api`")
        if item.name in found:
            raise TypeError(f"two protocol modules are named `{item.name}`")
        found[item.name] = item.create(resources)
    return tuple(sorted(found.values(), key=lambda p: p.is_fallback))
