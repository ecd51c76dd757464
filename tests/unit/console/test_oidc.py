"""Answers of an identity provider that are not sound: each is refused, and nobody is signed in."""

import asyncio
import contextlib
import socket
import time
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
import uvicorn
from authlib.jose import JsonWebKey, JsonWebToken
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from guard.console.oidc import PENDING_SECONDS, OidcTable, OpenIdConnect, SignInError
from guard.operations.deployment import Role

NOW = int(time.time())
SECRET = "client secret"
KEYS = {
    name: JsonWebKey.generate_key("EC", "P-256", is_private=True, options={"kid": name})
    for name in ("first", "false")
}
"""Signing keys: the issuer's, and somebody else's."""
SIGNERS = JsonWebToken(["ES256", "HS256", "none"])
SYMMETRIC = JsonWebKey.import_key(SECRET, {"kty": "oct"})


@pytest.fixture
async def issuer():
    """An issuer on loopback; tests change what it says."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    found = SimpleNamespace(url=url, describes={}, token={}, sign={}, answer={}, userinfo={})

    async def description(_):
        said = {name: f"{url}/{name}" for name in ("authorization_endpoint", "token_endpoint")}
        said |= {"issuer": url, "jwks_uri": f"{url}/keys", "userinfo_endpoint": f"{url}/who"}
        return JSONResponse({**said, **found.describes})

    async def published(_):
        return JSONResponse({"keys": [KEYS["first"].as_dict(is_private=False)]})

    async def token(request):
        found.form = parse_qs((await request.body()).decode())
        at = int(time.time())
        claims = {
            "iss": url, "sub": "u1", "aud": "guard", "exp": at + 60, "iat": at,
            "nonce": found.nonce, "email": "ann@corp.test", "groups": ["soc"], **found.token,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        sign = {"alg": "ES256", "kid": "first", "key": KEYS["first"], **found.sign}
        key = sign.pop("key")
        raw = SIGNERS.encode(sign, claims, key).decode()
        return JSONResponse({"access_token": "a", "token_type": "Bearer", "id_token": raw})

    async def who(_):
        return JSONResponse(found.userinfo)

    routes = [
        Route("/.well-known/openid-configuration", description),
        Route("/keys", published),
        Route("/token_endpoint", token, methods=["POST"]),
        Route("/who", who),
    ]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error"))
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    yield found
    server.should_exit = True
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture
def oidc(issuer, clock):
    """A console's side of that issuer."""
    table = OidcTable(issuer=issuer.url, client_id="guard", roles={"soc": (Role.APPROVER,)})
    return OpenIdConnect(table, SECRET, "http://console/sign-in/oidc/callback", lambda: clock.at)


async def _go(issuer, oidc, **answer):
    """Begin and come back; return the person."""
    url, cookie = await oidc.begin()
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    issuer.nonce = query["nonce"]
    given = {"code": "c", "state": query["state"], "iss": issuer.url, **issuer.answer, **answer}
    return await oidc.finish(cookie, {k: v for k, v in given.items() if v is not None})


async def test_a_sound_answer_is_a_person_with_the_roles_of_his_groups(issuer, oidc):
    """The subject is who he is, the name what he is called; the code is proven with PKCE."""
    person = await _go(issuer, oidc)
    assert (person.name, person.realm, person.subject) == ("ann@corp.test", issuer.url, "u1")
    assert person.roles == {Role.APPROVER}
    assert len(issuer.form["code_verifier"][0]) >= 43
    assert issuer.form["redirect_uri"] == ["http://console/sign-in/oidc/callback"]


UNSOUND = {
    "another issuer's": ("token", {"iss": "https://other.test"}),
    "for another client": ("token", {"aud": "other"}),
    "for several, authorised for another": ("token", {"aud": ["guard", "other"], "azp": "other"}),
    "of another sign-in": ("token", {"nonce": "other"}),
    "without a nonce": ("token", {"nonce": None}),
    "expired": ("token", {"exp": NOW - 120}),
    "without an end": ("token", {"exp": None}),
    "of the future": ("token", {"iat": NOW + 10**6}),
    "without a subject": ("token", {"sub": None}),
    "for another access token": ("token", {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}),
    "of nobody with a role": ("token", {"groups": ["marketing"]}),
    "with groups that are none": ("token", {"groups": {"soc": True}}),
    "unsigned": ("sign", {"alg": "none", "key": None}),
    "signed by somebody else": ("sign", {"key": KEYS["false"]}),
    "signed with the client's secret": ("sign", {"alg": "HS256", "key": SYMMETRIC}),
    "signed with an unknown key": ("sign", {"kid": "false", "key": KEYS["false"]}),
    "from another state": ("answer", {"state": "other"}),
    "without a state": ("answer", {"state": None}),
    "from another issuer": ("answer", {"iss": "https://other.test"}),
    "without a code": ("answer", {"code": None}),
    "an error": ("answer", {"error": "access_denied"}),
    "described by another issuer": ("describes", {"issuer": "https://other.test"}),
    "to a token endpoint in the clear": ("describes", {"token_endpoint": "http://evil.test/t"}),
    "without keys": ("describes", {"jwks_uri": None}),
    "of an endpoint that is a script": (
        "describes",
        {"authorization_endpoint": "javascript:alert(1)"},
    ),
}


@pytest.mark.parametrize(("part", "changed"), UNSOUND.values(), ids=UNSOUND)
async def test_an_unsound_answer_signs_nobody_in(issuer, oidc, part, changed):
    """Claim by claim (Core, 3.1.3.7), by signature, by state and issuer (RFC 9207), by metadata."""
    setattr(issuer, part, changed)
    with pytest.raises(SignInError):
        await _go(issuer, oidc)


async def test_an_issuer_that_names_itself_must_do_so(issuer, oidc):
    """Where the metadata promises `iss`, an answer without it is a mixed-up one."""
    assert await _go(issuer, oidc, iss=None)
    issuer.describes = {"authorization_response_iss_parameter_supported": True}
    with pytest.raises(SignInError):
        await _go(issuer, oidc, iss=None)


async def test_an_answer_is_good_once_in_its_browser_and_in_time(issuer, oidc, clock, monkeypatch):
    """Not again, not with another's cookie, not after ten minutes; and begun ones are bounded."""
    url, cookie = await oidc.begin()
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    issuer.nonce = query["nonce"]
    good = {"code": "c", "state": query["state"]}
    _, other = await oidc.begin()
    with pytest.raises(SignInError, match="another sign-in"):
        await oidc.finish(other, good)
    assert await oidc.finish(cookie, good)
    with pytest.raises(SignInError, match="has not begun"):
        await oidc.finish(cookie, good)
    _, late = await oidc.begin()
    clock.at += PENDING_SECONDS + 1
    with pytest.raises(SignInError, match="took too long"):
        await oidc.finish(late, good)
    monkeypatch.setattr("guard.console.oidc.PENDING", 5)
    for _ in range(9):
        await oidc.begin()
    assert len(oidc._begun) == 5


async def test_groups_may_come_from_userinfo_of_the_same_subject_only(issuer, oidc):
    """Another subject's claims are nobody's (Core, 5.3.2)."""
    issuer.token = {"groups": None}
    issuer.userinfo = {"sub": "u1", "groups": "soc"}
    assert (await _go(issuer, oidc)).roles == {Role.APPROVER}
    issuer.userinfo = {"sub": "u2", "groups": ["soc"]}
    with pytest.raises(SignInError):
        await _go(issuer, oidc)


def test_an_issuer_in_the_clear_is_refused():
    """Only https, or this machine."""
    with pytest.raises(ValueError, match="https"):
        OidcTable(issuer="http://login.test", client_id="g", roles={"a": (Role.VIEWER,)})
