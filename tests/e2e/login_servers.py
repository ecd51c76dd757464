"""An authorization server and a tool server that takes its tokens, both of the official SDK.

``login_servers.py issuer PORT TOKENS [iss]``: tokens for the one resource that they were asked
for; with ``iss`` it names itself in its answers (RFC 9207).  ``login_servers.py server PORT ISSUER
TOKENS`` takes tokens for itself only; TOKENS is the file by which it knows those of the issuer.
"""

import json
import secrets
import sys
import time
from pathlib import Path

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    construct_redirect_uri,
)
from mcp.server.auth.routes import build_metadata, create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.fastmcp import FastMCP
from mcp.shared.auth import OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

SCOPE = "notes"


class Issuer:
    """Gives a token to whoever asks, for the resource that was asked for."""

    def __init__(self, url, kept, *, names_itself):
        self.url, self.kept, self.names_itself = url, kept, names_itself
        self.clients = {}
        self.codes = {}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        code = secrets.token_urlsafe(24)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
        )
        said = {"code": code, "state": params.state}
        said |= {"iss": self.url} if self.names_itself else {}
        return construct_redirect_uri(str(params.redirect_uri), **said)

    async def load_authorization_code(self, client, code):
        return self.codes.get(code)

    async def exchange_authorization_code(self, client, code):
        token = secrets.token_urlsafe(24)
        known = json.loads(self.kept.read_text("utf-8")) if self.kept.exists() else {}
        self.kept.write_text(json.dumps({**known, token: code.resource}), "utf-8")
        return OAuthToken(access_token=token, expires_in=3600, scope=SCOPE)


def issuer(port, kept, *, names_itself):
    """Serve the authorization server."""
    url = AnyHttpUrl(f"http://127.0.0.1:{port}")
    options = ClientRegistrationOptions(enabled=True, valid_scopes=[SCOPE])
    document = build_metadata(url, None, options, RevocationOptions()).model_dump(
        mode="json", exclude_none=True
    )
    document["authorization_response_iss_parameter_supported"] = names_itself

    def metadata(_):
        return JSONResponse(document)

    provider = Issuer(str(url), kept, names_itself=names_itself)
    routes = create_auth_routes(provider, url, client_registration_options=options)
    own = Route("/.well-known/oauth-authorization-server", metadata)
    app = Starlette(routes=[own, *routes])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def server(port, issuer_url, kept):
    """Serve the tools."""
    url = f"http://127.0.0.1:{port}/mcp"

    def known(token):
        return json.loads(kept.read_text("utf-8")).get(token) if kept.exists() else None

    class Verifier:
        async def verify_token(self, token):
            if known(token) != url:
                return None
            return AccessToken(token=token, client_id="any", scopes=[SCOPE], resource=url)

    auth = AuthSettings(
        issuer_url=AnyHttpUrl(issuer_url),
        resource_server_url=AnyHttpUrl(url),
        required_scopes=[SCOPE],
    )
    tools = FastMCP("notes", host="127.0.0.1", port=port, auth=auth, token_verifier=Verifier())

    @tools.tool()
    def read_note(name):
        return f"the note {name}"

    tools.run("streamable-http")


if __name__ == "__main__":
    kind, number, *rest = sys.argv[1:]
    if kind == "issuer":
        issuer(int(number), Path(rest[0]), names_itself="iss" in rest)
    else:
        server(int(number), rest[0], Path(rest[1]))
