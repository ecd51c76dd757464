"""A notes service as a plain HTTP API; what it "shares" lands in the table of its SQLite file."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from guard.demo.serving import serve
from guard.demo.stores import NotesStore


def build(path: Path) -> Starlette:
    """Return the service on a SQLite file."""
    store = NotesStore(path)

    async def share(request: Request) -> JSONResponse:
        """Share a note with somebody."""
        note = await request.json()
        number = store.share(str(request.path_params["notebook"]), note["to"], note["text"])
        return JSONResponse({"shared": number})

    return Starlette(routes=[Route("/v1/{notebook}/share", share, methods=["POST"])])


if __name__ == "__main__":
    serve(build, "The demo's notes service (plain HTTP, loopback only).")
