"""The official clients of the model APIs: what an application asks of them and reads.

Their packages are imported where they are used: every worker of pytest imports every module of
tests, and these three take a fifth of that time.
"""

import json

PAGE = "page_model"
TOPIC = {"topic": "poisoned"}


def conversation(api, prompt, call="", output=""):
    """Return the messages of a request.

    Args:
        api: kind of the model API.
        prompt: of the user.
        call: id of a call of a page that was made after it; empty for none.
        output: result of that call.
    """
    text = json.dumps(TOPIC)
    if api == "openai_chat":
        made = {"id": call, "type": "function", "function": {"name": PAGE, "arguments": text}}
        rest = [
            {"role": "assistant", "content": "", "tool_calls": [made]},
            {"role": "tool", "tool_call_id": call, "content": output},
        ]
    elif api == "openai_responses":
        rest = [
            {"type": "function_call", "call_id": call, "name": PAGE, "arguments": text},
            {"type": "function_call_output", "call_id": call, "output": output},
        ]
    elif api == "anthropic":
        used = {"type": "tool_use", "id": call, "name": PAGE, "input": TOPIC}
        told = {"type": "tool_result", "tool_use_id": call, "content": output}
        rest = [{"role": "assistant", "content": [used]}, {"role": "user", "content": [told]}]
    else:
        made = {"id": call, "name": PAGE}
        rest = [
            {"role": "model", "parts": [{"functionCall": {**made, "args": TOPIC}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {**made, "response": {"result": output}}}],
            },
        ]
    said = {"parts": [{"text": prompt}]} if api == "gemini" else {"content": prompt}
    return [{"role": "user", **said}, *(rest if call else ())]


def _openai_chat(url, messages, extra, http, *, streamed):
    import openai

    asked = {"model": "m", "messages": messages, "extra_body": extra}
    with openai.OpenAI(api_key="k", base_url=f"{url}/v1", http_client=http) as client:
        if streamed:
            with client.chat.completions.stream(**asked) as events:
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**asked).choices[0]
    made = choice.message.tool_calls or []
    calls = [(c.id, c.function.name, json.loads(c.function.arguments)) for c in made]
    return choice.message.content, calls, choice.finish_reason


def _openai_responses(url, messages, extra, http, *, streamed):
    import openai

    asked = {"model": "m", "input": messages, "extra_body": extra}
    with openai.OpenAI(api_key="k", base_url=f"{url}/v1", http_client=http) as client:
        if streamed:
            with client.responses.stream(**asked) as events:
                seen = list(events)
                response = events.get_final_response()
            items = [one.item for one in seen if one.type == "response.output_item.done"]
            deltas = [one.delta for one in seen if one.type == "response.output_text.delta"]
            assert _calls_among(items) == _calls_among(response.output)
            assert "".join(deltas) == response.output_text
        else:
            response = client.responses.create(**asked)
    return response.output_text, _calls_among(response.output), response.status


def _calls_among(items):
    made = [item for item in items if item.type == "function_call"]
    return [(item.call_id, item.name, json.loads(item.arguments)) for item in made]


def _anthropic(url, messages, extra, http, *, streamed):
    import anthropic

    asked = {"model": "m", "max_tokens": 9, "messages": messages, "extra_body": extra}
    with anthropic.Anthropic(api_key="k", base_url=url, http_client=http) as client:
        if streamed:
            with client.messages.stream(**asked) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**asked)
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"]
    return text, calls, message.stop_reason


def _gemini(url, messages, extra, http, *, streamed):
    from google import genai

    options = {"base_url": url, "extra_body": extra, "httpx_client": http}
    with genai.Client(api_key="k", http_options=options) as client:
        if streamed:
            chunks = list(client.models.generate_content_stream(model="m", contents=messages))
        else:
            chunks = [client.models.generate_content(model="m", contents=messages)]
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    text = "".join(part.text or "" for part in parts)
    made = [part.function_call for part in parts if part.function_call]
    calls = [(call.id, call.name, call.args) for call in made]
    return text, calls, chunks[-1].candidates[0].finish_reason.value


APIS = {
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


def ask(api, url, prompt, *, streamed, extra=None, http=None, **result):
    """Ask by a client's own accumulation of the stream, or for the whole answer.

    Returns:
        The text, the calls, and why the answer ended.
    """
    return APIS[api](url, conversation(api, prompt, **result), extra, http, streamed=streamed)
