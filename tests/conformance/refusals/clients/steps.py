"""What every Python client of the refusal matrix runs: steps come in, what a model sees goes out.

One JSON line on standard input is one turn of a model, ``[{"tool", "arguments"}, ...]``, whose
calls are made at the same time.  One JSON line on standard output answers it, for each call:
``{"seen"}``, the text that the model is given; ``raised``, the type of an exception that the client
let through, beside it; or ``hung``.
"""

# ruff: noqa: BLE001, T201  (whatever fails was seen, and is printed)

import asyncio
import json
import sys

SECONDS = 60.0


async def _one(call, step):
    try:
        async with asyncio.timeout(SECONDS):
            return {"seen": await call(step["tool"], step["arguments"])}
    except TimeoutError:
        return {"hung": True}
    except BaseException as error:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return {"seen": str(error), "raised": type(error).__name__}


async def _all(opened):
    async with opened as call:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            calls = json.loads(line)
            print(json.dumps(await asyncio.gather(*(_one(call, c) for c in calls))), flush=True)


def serve(open_client):
    """Run a client until standard input ends: ``client.py TRANSPORT ADDRESS``.

    Args:
        open_client: given the transport (``http``, ``sse`` or ``stdio``) and the URL, or the words
            of the command; yields what makes a call and returns the text for the model.
    """
    transport, address = sys.argv[1:3]
    where = json.loads(address) if transport == "stdio" else address
    asyncio.run(_all(open_client(transport, where)))


def joined(content):
    """Return the text of a tool result's content."""
    return "\n".join(str(getattr(item, "text", "")) for item in content)
