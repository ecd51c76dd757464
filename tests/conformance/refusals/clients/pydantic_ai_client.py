"""pydantic-ai: a function model asks for a tool and is given what came of it."""

from contextlib import asynccontextmanager

from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import FunctionModel
from steps import serve


def _transport(transport, where):
    if transport == "stdio":
        return StdioTransport(command=where[0], args=where[1:])
    return SSETransport(where) if transport == "sse" else StreamableHttpTransport(where)


@asynccontextmanager
async def client(transport, where):
    """Yield how a tool is called."""
    async with MCPToolset(_transport(transport, where), init_timeout=60) as server:

        async def call(tool, arguments):
            seen = []

            def model(messages, info):
                del info
                for part in messages[-1].parts:
                    if isinstance(part, RetryPromptPart):
                        seen.append(part.model_response())
                    elif isinstance(part, ToolReturnPart):
                        seen.append(part.model_response_str())
                if seen:
                    return ModelResponse(parts=[TextPart("done")])
                return ModelResponse(parts=[ToolCallPart(tool, arguments)])

            await Agent(FunctionModel(model), toolsets=[server]).run("go")
            return "\n".join(seen)

        yield call


serve(client)
