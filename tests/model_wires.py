"""Answers of the four model APIs as their servers send them, and what a client reads of them."""

import json
from dataclasses import dataclass
from typing import Any

FORMATS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")


@dataclass(frozen=True)
class Call:
    """One call of an answer."""

    id: str
    name: str
    arguments: dict[str, Any]
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


def documents(raw):
    """Return the data of every event of a stream."""
    found = []
    for block in raw.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = [line[6:] for line in block.split(b"\n") if line.startswith(b"data: ")]
        if data and data != [b"[DONE]"]:
            found.append(json.loads(b"\n".join(data)))
    return found


def read_stream(kind, raw):
    """Return text, calls and the reason for the end, as a client puts them together."""
    return READERS[kind](documents(raw))


Read = tuple[str, list[tuple[str, str, dict[str, Any]]], str]


def _read_chat(found):
    text, finish, calls = "", "", {}
    for document in found:
        for choice in document["choices"]:
            finish = choice["finish_reason"] or finish
            text += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls") or []:
                call = calls.setdefault(part["index"], ["", "", ""])
                call[0] += part.get("id") or ""
                call[1] += part["function"].get("name") or ""
                call[2] += part["function"].get("arguments") or ""
    assert sorted(calls) == list(range(len(calls)))
    return text, [(i, n, json.loads(a)) for i, n, a in calls.values()], finish


def _read_anthropic(found):
    text, finish, open_, calls = "", "", {}, []
    for document in found:
        kind = document["type"]
        if kind == "content_block_start":
            assert document["index"] not in open_
            open_[document["index"]] = [document["content_block"], ""]
        elif kind == "content_block_delta":
            delta, block = document["delta"], open_[document["index"]]
            text += delta.get("text", "")
            block[1] += delta.get("partial_json", "")
        elif kind == "content_block_stop":
            block, arguments = open_[document["index"]]
            if block["type"] == "tool_use":
                calls.append((block["id"], block["name"], json.loads(arguments)))
        elif kind == "message_delta":
            finish = document["delta"]["stop_reason"]
    return text, calls, finish


def _read_responses(found):
    text, finish, items = "", "", {}
    for document in found:
        if document["type"] == "response.output_text.delta":
            text += document["delta"]
        elif document["type"] == "response.output_item.done":
            assert document["output_index"] == len(items)
            items[document["output_index"]] = document["item"]
        elif document["type"] == "response.completed":
            finish = document["response"]["status"]
            assert document["response"]["output"] == list(items.values())
    calls = [
        (item["call_id"], item["name"], json.loads(item["arguments"]))
        for item in items.values()
        if item["type"] == "function_call"
    ]
    return text, calls, finish


def _read_gemini(found):
    text, finish, calls = "", "", []
    for document in found:
        for candidate in document["candidates"]:
            finish = candidate.get("finishReason", finish)
            for part in candidate["content"]["parts"]:
                text += part.get("text", "")
                if "functionCall" in part:
                    call = part["functionCall"]
                    calls.append((call["id"], call["name"], call["args"]))
    return text, calls, finish


READERS = {
    "openai_chat": _read_chat,
    "openai_responses": _read_responses,
    "anthropic_messages": _read_anthropic,
    "gemini": _read_gemini,
}
