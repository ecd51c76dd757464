"""The OpenAI Agents SDK: a scripted model asks for a tool and is given what came of it."""

import json
from contextlib import asynccontextmanager

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerSse, MCPServerStdio, MCPServerStreamableHttp
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from steps import serve

set_tracing_disabled(True)


class Scripted(Model):
    """Asks for one call, keeps what it is given for it, and ends."""

    def __init__(self, tool, arguments):
        self.seen = []
        self._asked = ResponseFunctionToolCall(
            arguments=json.dumps(arguments), call_id="call_1", name=tool, type="function_call"
        )

    async def get_response(self, *args, **kwargs):
        """Return the call, or the end."""
        items = kwargs.get("input", args[1] if len(args) > 1 else [])
        outputs = [i for i in items if isinstance(i, dict) and i.get("call_id") and "output" in i]
        self.seen = [_text(item["output"]) for item in outputs]
        text = ResponseOutputText(annotations=[], text="done", type="output_text")
        end = ResponseOutputMessage(
            id="m", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(
            output=[end if outputs else self._asked], usage=Usage(), response_id=None
        )

    def stream_response(self, *args, **kwargs):
        """Not used."""
        raise NotImplementedError


def _text(output):
    if isinstance(output, str):
        return output
    items = output if isinstance(output, list) else [output]
    return "\n".join(str(item.get("text", item)) for item in items)


def _server(transport, where):
    # Without the cache it lists the tools before every turn, which a server that has ended cannot.
    if transport == "stdio":
        return MCPServerStdio({"command": where[0], "args": where[1:]}, cache_tools_list=True)
    kind = MCPServerSse if transport == "sse" else MCPServerStreamableHttp
    return kind({"url": where}, cache_tools_list=True)


@asynccontextmanager
async def client(transport, where):
    """Yield how a tool is called."""
    async with _server(transport, where) as server:
        await server.list_tools()

        async def call(tool, arguments):
            model = Scripted(tool, arguments)
            await Runner.run(Agent(name="a", model=model, mcp_servers=[server]), "go", max_turns=3)
            return "\n".join(model.seen)

        yield call


serve(client)
