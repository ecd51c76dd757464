"""``python2.py URL``: a client of the second Python SDK logs in and calls a tool."""

import asyncio
import sys
from unittest.mock import AsyncMock
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

BACK = "http://127.0.0.1:33418/callback"


async def main(url):
    """Print what the tool answers, and the issuer that the client was told of."""
    kept = AsyncMock(**{"get_tokens.return_value": None, "get_client_info.return_value": None})
    answer = {}

    async def opened(place):
        async with httpx2.AsyncClient() as browser:
            while not place.startswith(BACK):
                place = (await browser.get(place)).headers["location"]
        answer.update(parse_qs(urlsplit(place).query))

    async def returned():
        found = {name: answer[name][0] for name in ("code", "state", "iss") if name in answer}
        return AuthorizationCodeResult(**found)

    metadata = OAuthClientMetadata(client_name="test", redirect_uris=[BACK])
    login = OAuthClientProvider(url, metadata, kept, opened, returned)
    async with (
        httpx2.AsyncClient(auth=login) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        await session.list_tools()
        result = await session.call_tool("read_note", {"name": "n"})
        print(result.content[0].text, answer.get("iss", [""])[0])


asyncio.run(main(sys.argv[1]))
