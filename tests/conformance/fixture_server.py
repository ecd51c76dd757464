"""An MCP server that passes every scenario of the official conformance suite, in both eras.

It needs version 2 of the Python SDK, which the guard itself does not; ``make conformance`` gives
it an environment of its own.  ``python fixture_server.py PORT`` serves on loopback.
"""

# ruff: noqa: A002, E501, N803, N815, PT028  (names and values that the suite asks for)

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Annotated, Any

import mcp_types as types
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00").decode()
PAUSE = 0.05
MISSING_CAPABILITY = -32021
DIALECT = "https://json-schema.org/draft/2020-12/schema"
WIDE_SCHEMA: dict[str, Any] = {
    "$schema": DIALECT,
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
Result = types.CallToolResult | types.InputRequiredResult


class Replay(EventStore):
    """Keeps the events of every stream, for clients that come back."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Keep an event and return its id."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        """Send what came after an event of its stream."""
        last = int(last_event_id)
        if not 0 < last <= len(self._events):
            return None
        stream = self._events[last - 1][0]
        for number, (owner, message) in enumerate(self._events[last:], last + 1):
            if owner == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Fixture(MCPServer):
    """Lists one tool with a schema that no function signature gives."""

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools."""
        tools = await super().list_tools()
        for tool in tools:
            if tool.name == "json_schema_2020_12_tool":
                tool.input_schema = WIDE_SCHEMA
        return tools


server = Fixture("conformance-fixture", version="1")


def text(words: str) -> types.CallToolResult:
    """Return a result of one text."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)])


# --- plain tools ------------------------------------------------------------------------------


def _embedded(uri: str, media: str, words: str = "This is an embedded resource content.") -> Any:
    inner = types.TextResourceContents(uri=uri, mime_type=media, text=words)
    return types.EmbeddedResource(type="resource", resource=inner)


def _result(*content: Any, **fields: Any) -> types.CallToolResult:
    return types.CallToolResult(content=list(content), **fields)


PICTURE = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
FIXED = {
    "test_simple_text": text("This is a simple text response for testing."),
    "test_image_content": _result(PICTURE),
    "test_audio_content": _result(
        types.AudioContent(type="audio", data=SOUND, mime_type="audio/wav")
    ),
    "test_embedded_resource": _result(_embedded("test://embedded-resource", "text/plain")),
    "test_multiple_content_types": _result(
        text("Multiple content types test:").content[0],
        PICTURE,
        _embedded("test://mixed-content-resource", "application/json", '{"test": "data"}'),
    ),
    "test_error_handling": _result(
        text("This tool intentionally returns an error for testing").content[0], is_error=True
    ),
    "json_schema_2020_12_tool": text("ok"),
}
"""Results of the tools that always return the same."""


def fixed(result: types.CallToolResult) -> Any:
    """Return a tool of one result."""

    def tool() -> types.CallToolResult:
        return result

    return tool


for name, made in FIXED.items():
    server.tool(name, description=name)(fixed(made))


@server.tool()
def echo(words: str) -> types.CallToolResult:
    """Return the words."""
    return text(words)


@server.tool()
def test_custom_headers(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
    tries: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Tries"})] = 1,
) -> types.CallToolResult:
    """Mirror arguments in headers."""
    return text(f"{region} {tries}")


# --- tools that say something on the way ------------------------------------------------------


@server.tool()
async def test_tool_with_logging(ctx: Context) -> types.CallToolResult:
    """Log three times."""
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(words)
        await asyncio.sleep(PAUSE)
    return text("logged")


@server.tool()
async def test_logging_tool(ctx: Context) -> types.CallToolResult:
    """Log once, to those who asked for it."""
    await ctx.info("a line")
    return text("logged")


@server.tool()
async def test_tool_with_progress(ctx: Context) -> types.CallToolResult:
    """Report progress three times."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(PAUSE)
    return text("done")


@server.tool()
async def test_reconnection(ctx: Context) -> types.CallToolResult:
    """Close the stream in the middle; the result waits for whoever comes back."""
    await ctx.close_sse_stream()
    await asyncio.sleep(4 * PAUSE)
    return text("Reconnection test completed")


@server.tool()
async def test_trigger_tool_change(ctx: Context) -> types.CallToolResult:
    """Tell subscribers that the tools changed."""
    await ctx.notify_tools_changed()
    return text("told")


@server.tool()
async def test_trigger_prompt_change(ctx: Context) -> types.CallToolResult:
    """Tell subscribers that the prompts changed."""
    await ctx.notify_prompts_changed()
    return text("told")


# --- tools that ask the client (up to 2025-11-25) ---------------------------------------------


class Answer(BaseModel):
    """What a user types."""

    response: str


class Defaults(BaseModel):
    """A form with a default in every field."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: str = Field("active", json_schema_extra={"enum": ["active", "inactive", "pending"]})
    verified: bool = True


def _options(kind: str, *names: str) -> dict[str, Any]:
    return {kind: [{"const": name, "title": name.capitalize()} for name in names]}


class Choices(BaseModel):
    """A form with every kind of choice."""

    untitledSingle: str = Field(json_schema_extra={"enum": ["option1", "option2", "option3"]})
    titledSingle: str = Field(json_schema_extra=_options("oneOf", "value1", "value2", "value3"))
    legacyEnum: str = Field(
        json_schema_extra={"enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]}
    )
    untitledMulti: list[str] = Field(
        json_schema_extra={"items": {"type": "string", "enum": ["option1", "option2", "option3"]}}
    )
    titledMulti: list[str] = Field(
        json_schema_extra={"items": _options("anyOf", "value1", "value2", "value3")}
    )


async def _form(ctx: Context, words: str, schema: type[BaseModel]) -> types.CallToolResult:
    answer = await ctx.elicit(words, schema)
    content = answer.data.model_dump_json() if answer.action == "accept" else "{}"
    return text(f"Elicitation completed: action={answer.action}, content={content}")


@server.tool()
async def test_elicitation(message: str, ctx: Context) -> types.CallToolResult:
    """Ask the user."""
    return await _form(ctx, message, Answer)


@server.tool()
async def test_elicitation_sep1034_defaults(ctx: Context) -> types.CallToolResult:
    """Ask with defaults."""
    return await _form(ctx, "Please review", Defaults)


@server.tool()
async def test_elicitation_sep1330_enums(ctx: Context) -> types.CallToolResult:
    """Ask with choices."""
    return await _form(ctx, "Please choose", Choices)


@server.tool()
async def test_sampling(prompt: str, ctx: Context) -> types.CallToolResult:
    """Ask the client's model."""
    words = types.TextContent(type="text", text=prompt)
    message = types.SamplingMessage(role="user", content=words)
    answer = await ctx.session.create_message([message], max_tokens=100)
    return text(f"LLM response: {answer.content.text}")


# --- tools that need input (2026-07-28) -------------------------------------------------------


def _ask(words: str, name: str, kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    params = types.ElicitRequestFormParams(message=words, requested_schema=schema)
    return types.ElicitRequest(params=params)


def _model(words: str) -> types.CreateMessageRequest:
    content = types.TextContent(type="text", text=words)
    message = types.SamplingMessage(role="user", content=content)
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    return types.CreateMessageRequest(params=params)


def _need(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def _given(ctx: Context, *names: str) -> bool:
    return all(name in (ctx.input_responses or {}) for name in names)


def _field(ctx: Context, name: str, field: str) -> Any:
    answer = (ctx.input_responses or {})[name]
    return (getattr(answer, "content", None) or {}).get(field)


NAME = {"user_name": _ask("What is your name?", "name")}
CONFIRM = {"confirm": _ask("Please confirm", "ok", "boolean")}
ROOTS = {"client_roots": types.ListRootsRequest()}
NEEDED: dict[str, tuple[str | None, dict[str, Any]]] = {
    "test_input_required_result_elicitation": (None, NAME),
    "test_streaming_elicitation": (None, NAME),
    "test_input_required_result_sampling": (
        None,
        {"capital_question": _model("What is the capital of France?")},
    ),
    "test_input_required_result_list_roots": (None, ROOTS),
    "test_input_required_result_request_state": ("asked", CONFIRM),
    # The SDK refuses a state that it did not seal.
    "test_input_required_result_tampered_state": ("asked", CONFIRM),
    "test_input_required_result_multiple_inputs": (
        "asked",
        NAME | ROOTS | {"greeting": _model("Generate a greeting")},
    ),
}
"""State and requests of the tools that need input once."""


def needing(state: str | None, requests: dict[str, Any]) -> Any:
    """Return a tool that needs input, and the state back."""

    async def tool(ctx: Context) -> Result:
        if not _given(ctx, *requests) or ctx.request_state != state:
            return _need(state, **requests)
        return text(f"state-ok: {ctx.input_responses}")

    return tool


for name, needed in NEEDED.items():
    server.tool(name, description=name)(needing(*needed))


@server.tool()
async def test_input_required_result_multi_round(ctx: Context) -> Result:
    """Need one thing, then another."""
    if ctx.request_state == "round-2" and _given(ctx, "step2"):
        return text("both rounds are done")
    if ctx.request_state == "round-1" and _given(ctx, "step1"):
        return _need("round-2", step2=_ask("Step 2: What is your favorite color?", "color"))
    return _need("round-1", step1=_ask("Step 1: What is your name?", "name"))


@server.tool()
async def test_input_required_result_capabilities(ctx: Context) -> Result:
    """Ask only what the client can answer."""
    can = ctx.client_capabilities or types.ClientCapabilities()
    requests: dict[str, Any] = {}
    if can.sampling is not None:
        requests["model"] = _model("Say something")
    if can.elicitation is not None:
        requests["user"] = _ask("Say something", "words")
    return _need("asked", **requests)


@server.tool()
async def test_missing_capability(ctx: Context) -> Result:
    """Need a client that samples."""
    can = ctx.client_capabilities or types.ClientCapabilities()
    if can.sampling is None:
        needed = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_CAPABILITY, "sampling is required", needed)
    return text("capable")


# --- resources and prompts --------------------------------------------------------------------


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """Return a text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """Return a picture."""
    return base64.b64decode(PIXEL)


@server.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """Return what can be watched."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:
    """Return a document with the id."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def _says(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@server.prompt()
def test_simple_prompt() -> str:
    """Return a prompt."""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Return a prompt with its arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
    """Return a prompt with a resource."""
    return [_says(_embedded(resourceUri, "text/plain")), _says("Please process the resource.")]


@server.prompt()
def test_prompt_with_image() -> list[Any]:
    """Return a prompt with a picture."""
    picture = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
    return [_says(picture), _says("Please analyze the image above.")]


@server.prompt()
async def test_input_required_result_prompt(ctx: Context) -> Any:
    """Need a context first."""
    if not _given(ctx, "user_context"):
        return _need(user_context=_ask("What context should the prompt use?", "context"))
    return f"Use {_field(ctx, 'user_context', 'context')}."


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
    """Complete every argument to itself."""
    del ref, context
    return types.Completion(values=[argument.value], total=1, has_more=False)


async def _nothing(ctx: Any, params: Any) -> types.EmptyResult:
    del ctx, params
    return types.EmptyResult()


for method, params in (
    ("logging/setLevel", types.SetLevelRequestParams),
    ("resources/subscribe", types.SubscribeRequestParams),
    ("resources/unsubscribe", types.UnsubscribeRequestParams),
):
    server._lowlevel_server.add_request_handler(method, params, _nothing)


if __name__ == "__main__":
    app = server.streamable_http_app(event_store=Replay(), retry_interval=100)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
