"""A parsed message: its calls, results and side content.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guard.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json


@frozen
class ParsedCall:
    """One tool call as it stands in a message."""

    tool: str
    arguments: Mapping[str, Json]
    correlation: str | None = None
    """Id that its result will carry (a JSON-RPC id with its type); None where the result is the
    answer to this very exchange."""
    meta: Json = None
    """Data beside the arguments (MCP ``_meta``), without the parts that differ in every retry."""
    trace: str = ""
    """Its ``traceparent``, where the message has one beside the arguments."""
    unbound: frozenset[str] = frozenset()
    """Arguments that differ in every retry; what of them lasts is in ``meta``."""


@dataclass(frozen=True, slots=True)
class ReportedResult:
    """The result of a call that was made elsewhere, as an agent reports it to its model."""

    call: ParsedCall
    """The call as the history has it; its correlation finds the call that was judged."""
    content: Json
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Echo:
    """A token that a client sends back and that its server must have issued before."""

    value: Json
    call: ParsedCall
    """Call as which it is judged unless the server has issued it."""
    answers: bool = False
    """True if it is the mark of a question: the server must have asked this very principal."""


@frozen
class Message:
    """One request, read once."""

    calls: tuple[ParsedCall, ...] = ()
    reported: tuple[ReportedResult, ...] = ()
    """Results that the request reports to a model: of tools that the agent runs itself."""
    tasks: tuple[tuple[str | None, str], ...] = ()
    """Requests that ask what a task has come to: the request's correlation, the task's id."""
    side_content: tuple[ParsedCall, ...] = ()
    """Other content that leaves with the message, each part as a call without a result: judged like
    any other, before any call goes out."""
    echoes: tuple[Echo, ...] = ()
    """Content that is side content unless the server has issued it."""
    plain: tuple[tuple[str | None, str], ...] = ()
    """Requests that are not calls: correlation and method.  Their answers are expected."""
    user_role_claims: tuple[str, ...] = ()
    """Values in the newest turn of the role ``user`` of a conversation with a model: the agent's
    claim that its user has named them."""
    session_id: str | None = None
    """A session id found in the message (MCP ``_meta``), if any."""
    parsed: Json = None
    """Data of the message that the protocol module has to keep, e.g. the ids in a batch."""


@frozen
class ParsedResult:
    """One result found in an answer."""

    correlation: str | None
    content: Json
    is_error: bool = False
