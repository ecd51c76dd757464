"""An MCP server that uses every part of the protocol, to be run beside and behind the guard.

Streamable HTTP on loopback, built with the official SDK: progress, logging, and requests of the
server to its client (sampling, elicitation, roots) inside an open POST stream.  It says on which
port it listens and ends when its standard input does.
"""

from __future__ import annotations

import sys
from typing import Any

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

from guard.processes.loopback import serve_on_loopback

Session = Context[Any, Any, Any]


class Person(BaseModel):
    """Form of the elicitation."""

    name: str
    age: int


server = FastMCP("fixture")


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
def fail(text: str) -> str:
    """Fail with the text."""
    raise ValueError(text)


@server.tool()
async def count(to: int, ctx: Session) -> int:
    """Report progress for every number up to `to`, with a log line each, then return it."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"at {number}")
        await ctx.info(f"counted {number}")
    return to


@server.tool()
async def ask_user(question: str, ctx: Session) -> str:
    """Ask the user and return what was answered."""
    answer = await ctx.elicit(question, schema=Person)
    if answer.action != "accept":
        return answer.action
    return f"{answer.data.name} is {answer.data.age}"


@server.tool()
async def ask_model(question: str, ctx: Session) -> str:
    """Ask the client's model and return what it said."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=question))
    answer = await ctx.session.create_message([message], max_tokens=10)
    return answer.content.text if isinstance(answer.content, TextContent) else "no text"


@server.tool()
async def ask_roots(ctx: Session) -> list[str]:
    """Ask the client for its roots and return their URIs."""
    return [str(root.uri) for root in (await ctx.session.list_roots()).roots]


@server.resource("fixture://note")
def note() -> str:
    """Return a note."""
    return "a note"


@server.resource("fixture://number/{number}")
def number(number: str) -> str:
    """Return a number."""
    return number


@server.prompt()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Greet {name}."


if __name__ == "__main__":
    # With `sse` it speaks as servers did before there was Streamable HTTP.
    older = "sse" in sys.argv[1:]
    serve_on_loopback(server.sse_app if older else server.streamable_http_app)
