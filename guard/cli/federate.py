"""``guard federate``: one MCP endpoint in front of the guard's listeners."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from guard.core.errors import InputError


def federate(
    server: Annotated[
        list[str], typer.Argument(help="NAME=URL of a server at the guard's listener; repeat.")
    ],
    listen: Annotated[str, typer.Option(help="HOST:PORT of the endpoint.")] = "127.0.0.1:9000",
) -> None:
    """Serve one MCP endpoint for several servers: lists merged, names prefixed (`mail__send`).

    Resources are `federation:NAME/URI`; subscriptions to them are refused.

    It decides nothing: the URLs are those of the guard's own listeners, which judge each call as
    one to its own server.

    Example: guard federate mail=http://127.0.0.1:9001/mail files=http://127.0.0.1:9001/files
    """
    import uvicorn

    from guard.runtime.federation import ENDPOINT, MARK, application

    servers: dict[str, str] = {}
    for text in server:
        name, equals, url = text.partition("=")
        plain = re.fullmatch(r"[A-Za-z0-9-]{1,32}", name)
        if (
            not equals
            or not plain
            or name in servers
            or not url.startswith(("http://", "https://"))
        ):
            raise InputError(f"`{text}` is not NAME=URL with a name of its own, without `{MARK}`")
        servers[name] = url
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit():
        raise InputError(f"`{listen}` is not HOST:PORT")
    typer.echo(f"federation ready on http://{host}:{port}{ENDPOINT}", err=True)
    hosts = [listen, f"localhost:{port}"]
    uvicorn.run(application(servers, hosts), host=host, port=int(port), log_level="warning")
