"""Requests of the login at reverse listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.pipeline.exchange import refusal_of
from guard.protocols.http.oauth import LOGIN_PATHS
from guard.protocols.http.oauth import refused as login_refused
from guard.protocols.refusals import unreadable, unreadable_sentence

if TYPE_CHECKING:
    from guard.pipeline.exchange import MessageRoute
    from guard.pipeline.handler_parts import HandlerParts
    from guard.pipeline.identity import Login
    from guard.protocols.http.message import HttpReply, HttpRequest

LOGIN: Final = "oauth"
"""Protocol in audit lines of refused login requests."""
NOT_FOUND: Final = 404


def is_login(request: HttpRequest) -> bool:
    """Return True for a request to an endpoint of the login."""
    return request.target.startswith(LOGIN_PATHS) and not request.chosen


async def answer_login(
    parts: HandlerParts, login: Login, request: HttpRequest, route: MessageRoute, decision_id: str
) -> HttpReply:
    """Answer a request of the login; a failure is refused, in every mode."""
    try:
        return await login.answer(request, route.principal, decision_id)
    except Exception as error:  # noqa: BLE001  (it must end in a refusal, whatever it met)
        failure = refusal_of(error, parts.metrics, "hook")
    if failure.status != NOT_FOUND:
        # Clients probe for a login; its absence is an ordinary answer.
        parts.failures.record(failure, LOGIN, route, decision_id)
    sentence = unreadable_sentence(failure, decision_id)
    return login_refused(failure, sentence, unreadable(failure, decision_id))
