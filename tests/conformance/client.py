"""What the Python SDK sees of a server, as one JSON object: ``client.py URL REVISION``."""

# ruff: noqa: BLE001, T201  (whatever fails was seen, and is printed)

import asyncio
import json
import sys

from mcp import Client


async def main(url, revision):
    """Return the answers by step; a failure is something that was seen as well."""
    seen = []

    async def progress(done, total, message):
        seen.append([done, total, message])

    notes = {}
    async with Client(url, mode="2026-07-28" if revision >= "2026-07-28" else "legacy") as client:
        steps = {
            "tools-list": client.list_tools,
            "tools-call": lambda: client.call_tool("echo", {"words": "Grüße 😀 \u2028 line"}),
            "tools-call-large": lambda: client.call_tool("echo", {"words": "x" * 300_000}),
            "tools-call-mixed": lambda: client.call_tool("test_multiple_content_types", {}),
            "tools-call-error": lambda: client.call_tool("test_error_handling", {}),
            "tools-call-progress": lambda: client.call_tool(
                "test_tool_with_progress", {}, progress_callback=progress
            ),
            "resources-list": client.list_resources,
            "resources-read": lambda: client.read_resource("test://static-binary"),
            "prompts-list": client.list_prompts,
            "prompts-get": lambda: client.get_prompt(
                "test_prompt_with_arguments", {"arg1": "a", "arg2": "b"}
            ),
        }
        for name, step in steps.items():
            try:
                answer = await step()
                notes[name] = [answer.model_dump(mode="json", by_alias=True), *seen]
            except Exception as error:
                notes[name] = {"failed": f"{type(error).__name__}: {error}"}
            seen.clear()
    return notes


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:3]))))
