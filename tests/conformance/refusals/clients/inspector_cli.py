"""The Inspector's command line: a process and a connection for each call."""

import asyncio
import json
import os
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from steps import serve

MODULES = Path(__file__).parents[2] / "node_modules"


class InspectorError(Exception):
    """The Inspector ended with an error."""


@asynccontextmanager
async def client(transport, where):
    """Yield how a tool is called."""

    async def call(tool, arguments):
        words = [
            os.environ["MATRIX_NODE"],
            str(MODULES / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"),
            "--cli",
        ]
        words += [*where] if transport == "stdio" else [where, "--transport", transport]
        words += ["--method", "tools/call", "--tool-name", tool]
        for name, value in arguments.items():
            words += ["--tool-arg", f"{name}={value}"]
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=-1
        )
        out, err = await process.communicate()
        # An error result ends it with a status of its own, after it was printed; what failed
        # before is one line of JSON on standard error.
        for text, member in ((out, "content"), (err.rsplit(b"\n{", 1)[-1], "error")):
            with suppress(ValueError, KeyError, TypeError):
                found = json.loads(text if text[:1] == b"{" else b"{" + text)[member]
                if member == "error":
                    return str(found["message"])
                return "\n".join(item.get("text", "") for item in found)
        raise InspectorError(err.decode()[-2000:])

    yield call


serve(client)
