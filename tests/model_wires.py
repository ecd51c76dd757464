"""Answers of the four model APIs as their servers send them, and what a client reads of them."""

import json
import platform
from dataclasses import dataclass

import httpx

from tests.model_clients import ask

# OpenAI's client asks for it once, by a process: no unit test may start one.
platform.processor()
FORMATS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
PATHS = {
    "chat/completions": "openai_chat",
    "responses": "openai_responses",
    "/messages": "anthropic_messages",
    "enerateContent": "gemini",
}
"""Words in the paths of the APIs."""


@dataclass(frozen=True)
class Call:
    """One call of an answer."""

    id: str
    name: str
    arguments: dict
    escaped: bool = False

    @property
    def text(self):
        """The arguments as the model wrote them."""
        return json.dumps(self.arguments, ensure_ascii=self.escaped)


def event(document, name="", newline="\n"):
    """Return a server-sent event."""
    data = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
    head = f"event: {name}{newline}" if name else ""
    return f"{head}data: {data}{newline}{newline}".encode()


def pieces(text, size):
    """Cut a text."""
    return [text[i : i + size] for i in range(0, len(text), size)] or [""]


def stream(kind, text, calls, size=7):
    """Return a whole stream: text first, then the calls."""
    return b"".join(STREAMS[kind](text, calls, size))


def _chat_stream(text, calls, size):
    base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta, finish=None):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**base, "choices": [choice], "usage": None})

    out = [chunk({"role": "assistant", "content": "", "refusal": None})]
    out += [chunk({"content": piece}) for piece in pieces(text, size)]
    for index, call in enumerate(calls):
        start = {"name": call.name, "arguments": ""}
        opening = {"index": index, "id": call.id, "type": "function", "function": start}
        out.append(chunk({"tool_calls": [opening]}))
        out += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in pieces(call.text, size)
        ]
    out.append(chunk({}, "tool_calls" if calls else "stop"))
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    out.append(event({**base, "choices": [], "usage": usage}))
    return [*out, event("[DONE]")]


def _anthropic_stream(text, calls, size):
    def send(kind, **members):
        return event({"type": kind, **members}, kind)

    message = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    out = [send("message_start", message=message), send("ping")]
    blocks = [
        (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in pieces(text, size)],
        )
    ]
    blocks += [
        (
            {"type": "tool_use", "id": call.id, "name": call.name, "input": {}},
            [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in pieces(call.text, size)
            ],
        )
        for call in calls
    ]
    for index, (block, deltas) in enumerate(blocks):
        out.append(send("content_block_start", index=index, content_block=block))
        out += [send("content_block_delta", index=index, delta=delta) for delta in deltas]
        out.append(send("content_block_stop", index=index))
    reason = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    out.append(send("message_delta", delta=reason, usage={"output_tokens": 9}))
    return [*out, send("message_stop")]


def _response(output, status):
    return {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "m",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "output": output,
    }


def _items(text, calls):
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    return [
        message,
        *(
            {
                "id": f"fc_{call.id}",
                "type": "function_call",
                "status": "completed",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.text,
            }
            for call in calls
        ),
    ]


def _responses_stream(text, calls, size):
    out = []

    def send(kind, **members):
        document = {"type": kind, "sequence_number": len(out), **members}
        out.append(event(document, kind))

    send("response.created", response=_response([], "in_progress"))
    message, *items = _items(text, calls)
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    empty = {**message, "status": "in_progress", "content": []}
    send("response.output_item.added", output_index=0, item=empty)
    send("response.content_part.added", **place, part={**message["content"][0], "text": ""})
    for piece in pieces(text, size):
        send("response.output_text.delta", **place, delta=piece, logprobs=[])
    send("response.output_text.done", **place, text=text, logprobs=[])
    send("response.content_part.done", **place, part=message["content"][0])
    send("response.output_item.done", output_index=0, item=message)
    for index, item in enumerate(items, start=1):
        where = {"item_id": item["id"], "output_index": index}
        started = {**item, "status": "in_progress", "arguments": ""}
        send("response.output_item.added", output_index=index, item=started)
        for piece in pieces(item["arguments"], size):
            send("response.function_call_arguments.delta", **where, delta=piece)
        arguments = item["arguments"]
        send(
            "response.function_call_arguments.done", **where, name=item["name"], arguments=arguments
        )
        send("response.output_item.done", output_index=index, item=item)
    send("response.completed", response=_response([message, *items], "completed"))
    return out


def _gemini_document(parts, finish=None):
    candidate = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    usage = {"promptTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}


def _gemini_parts(calls):
    return [
        {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
        for call in calls
    ]


def _gemini_stream(text, calls, size):
    out = [event(_gemini_document([{"text": p}]), newline="\r\n") for p in pieces(text, size)]
    out += [event(_gemini_document([part]), newline="\r\n") for part in _gemini_parts(calls)]
    return [*out, event(_gemini_document([{"text": ""}], "STOP"), newline="\r\n")]


STREAMS = {
    "openai_chat": _chat_stream,
    "openai_responses": _responses_stream,
    "anthropic_messages": _anthropic_stream,
    "gemini": _gemini_stream,
}


def whole(kind, text, calls):
    """Return the same answer without streaming."""
    if kind == "openai_chat":
        listed = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.text}}
            for c in calls
        ]
        message = {"role": "assistant", "content": text, "refusal": None}
        message |= {"tool_calls": listed} if listed else {}
        reason = "tool_calls" if calls else "stop"
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
        return {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }
    if kind == "anthropic_messages":
        blocks = [
            {"type": "text", "text": text},
            *(
                {"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments}
                for c in calls
            ),
        ]
        return {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": blocks,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
    if kind == "openai_responses":
        return _response(_items(text, calls), "completed")
    return _gemini_document([{"text": text}, *_gemini_parts(calls)], "STOP")


def answered(path, body, calls):
    """Return the answer of the API that a request asks, with some calls, and its media type."""
    kind = next(name for words, name in PATHS.items() if words in path)
    if json.loads(body).get("stream") or "alt=sse" in path:
        return stream(kind, "Let me see. ", calls), "text/event-stream"
    return json.dumps(whole(kind, "Let me see. ", calls)).encode(), "application/json"


def read_stream(kind, raw):
    """Return text, calls and the reason for the end, as the vendor's client puts them together."""
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=raw)
    with httpx.Client(transport=httpx.MockTransport(lambda _: answer)) as http:
        api = kind.removesuffix("_messages")
        return ask(api, "http://model.test", "hello", streamed=True, http=http)
