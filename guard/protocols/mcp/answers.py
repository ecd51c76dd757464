"""What an MCP client answers to its server: data on its way out.  Pure: no I/O.

A server may ask for a completion (sampling), for something only the user knows (elicitation) or for
the client's roots.  Up to 2025-11-25 the answer is a JSON-RPC response of the client; since
2026-07-28 it is a member of the request that goes on.  Each is a call of the names below, judged
wherever the policy maps the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from guard.protocols import ParsedCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.model import Json
    from guard.protocols.framing.jsonrpc import RpcMessage

ELICITATION: Final = "mcp.elicitation"
SAMPLING: Final = "mcp.sampling"
ROOTS: Final = "mcp.roots"
ANSWER: Final = "mcp.answer"
"""Any other answer that has something in it, errors included."""
TOOLS: Final = (ELICITATION, SAMPLING, ROOTS, ANSWER)
RESPONSES: Final = "inputResponses"


def answers_in(messages: Sequence[RpcMessage]) -> Iterator[ParsedCall]:
    """Yield every answer of the client in a message or batch that says anything.

    Raises:
        MessageError: answers of a form that servers may read in different ways.
    """
    for message in messages:
        if message.method is None:
            yield from _answer(message.error if message.result is None else message.result)
            continue
        responses = message.params.get(RESPONSES)
        if responses is None:
            continue
        if not isinstance(responses, dict | list):
            raise MessageError("bad_call", f"`{RESPONSES}` must be an object")
        for response in responses.values() if isinstance(responses, dict) else responses:
            yield from _answer(_unwrapped(response))


def _unwrapped(response: Json) -> Json:
    """Return the result where a response is written as a JSON-RPC one."""
    if isinstance(response, dict) and set(response) <= {"id", "jsonrpc", "method", "result"}:
        return response.get("result", response)
    return response


def _answer(answer: Json) -> Iterator[ParsedCall]:
    if answer in (None, {}, []) or answer in ({"action": "decline"}, {"action": "cancel"}):
        return
    members = answer if isinstance(answer, dict) else {}
    name = ANSWER
    if "action" in members:
        name = ELICITATION
    elif "roots" in members:
        name = ROOTS
    elif "role" in members and "content" in members:
        name = SAMPLING
    yield ParsedCall(name, {"answer": answer})
