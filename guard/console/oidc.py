"""Signing in with OpenID Connect: the authorization code flow with PKCE, state and nonce.

OpenID Connect Core 1.0 (section 3.1), Discovery 1.0, RFC 7636 (PKCE, S256), RFC 9207 (the issuer in
the answer).  Authlib speaks the protocol and verifies the ID token; what is here binds an answer to
the browser that began, and turns claims into a person with roles.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import httpx
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.jose import JsonWebKey, JsonWebToken
from authlib.oidc.core import CodeIDToken
from pydantic import BaseModel, ConfigDict, Field, field_validator

from guard.core.errors import GuardError
from guard.operations.people import Person, Role

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

PENDING: Final = 1000
"""Sign-ins that have begun and not come back; of more, the oldest go."""
PENDING_SECONDS: Final = 600.0
KNOWN_SECONDS: Final = 3600.0
"""How long the issuer's description and keys are used before they are asked for again."""
REFETCH_SECONDS: Final = 10.0
"""Between two looks for keys that are not known."""
TIMEOUT: Final = 5.0
LEEWAY: Final = 60
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
"""Public-key signatures only: who can verify a token must not be able to make one."""


class OidcTable(BaseModel):
    """Table ``[oidc]`` of the people file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: str
    client_id: str
    client_secret: Path | None = None
    """File with the client's secret, beside the people file; left out for a public client."""
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    groups: str = "groups"
    """The claim with a person's groups: a list, or one."""
    name: str = "email"
    """The claim that people see; where it is missing, the subject."""
    roles: Annotated[dict[str, tuple[Role, ...]], Field(min_length=1)]
    """Roles by group; who is in none of them does not get in."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256", "ES256", "EdDSA")

    @field_validator("issuer")
    @classmethod
    def _is_safe(cls, value: str) -> str:
        if not _safe(value):
            raise ValueError("an issuer is an https URL")
        return value


class SignInError(GuardError):
    """A sign-in that did not succeed, and why, in words for the person."""


@dataclass(frozen=True, slots=True)
class _Begun:
    state: str
    nonce: str
    verifier: str
    until: float


class OpenIdConnect:
    """One issuer that people sign in with.

    Args:
        table: of the people file.
        secret: of the client; empty for a public client.
        redirect: returns the URL that the issuer sends people back to.
        monotonic: seconds, for what lasts a while.
        wall: seconds since the epoch, for the times in tokens.
    """

    def __init__(
        self,
        table: OidcTable,
        secret: str,
        redirect: Callable[[], str],
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._table = table
        self._secret = secret
        self._redirect = redirect
        self._now = monotonic
        self._wall = wall
        self._begun: OrderedDict[bytes, _Begun] = OrderedDict()
        self._described: tuple[dict[str, Any], float] = ({}, float("-inf"))
        self._keys: tuple[dict[str, Any], float] = ({}, float("-inf"))

    @property
    def name(self) -> str:
        """The issuer's host, for people."""
        return urlsplit(self._table.issuer).netloc

    async def begin(self) -> tuple[str, str]:
        """Return where to send a browser, and the secret that its cookie keeps until it is back.

        Raises:
            SignInError: the issuer does not answer.
        """
        described = await self._description()
        cookie = secrets.token_urlsafe(32)
        begun = _Begun(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            until=self._now() + PENDING_SECONDS,
        )
        self._begun[_digest(cookie)] = begun
        while len(self._begun) > PENDING:
            self._begun.popitem(last=False)
        async with self._client() as client:
            url, _ = client.create_authorization_url(
                described["authorization_endpoint"],
                state=begun.state,
                nonce=begun.nonce,
                code_verifier=begun.verifier,
            )
        return str(url), cookie

    async def finish(self, cookie: str, answer: Mapping[str, str]) -> Person:
        """Return who has come back.

        Args:
            cookie: what :meth:`begin` gave to this browser; it is good once.
            answer: the query that the issuer sent the browser back with.

        Raises:
            SignInError: this browser has not begun, the issuer refused, or its answer is not sound.
        """
        begun = self._begun.pop(_digest(cookie), None)
        if begun is None or self._now() > begun.until:
            raise SignInError("this browser has not begun to sign in, or took too long: again")
        if not hmac.compare_digest(answer.get("state", "").encode(), begun.state.encode()):
            raise SignInError("the answer belongs to another sign-in")
        if answer.get("iss", self._table.issuer) != self._table.issuer:
            raise SignInError("the answer is another issuer's")
        if "error" in answer or not answer.get("code"):
            raise SignInError("the identity provider did not sign you in")
        try:
            claims = await self._claims(begun, answer)
        except (AuthlibBaseError, httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            msg = f"the identity provider's answer is not sound ({type(error).__name__})"
            raise SignInError(msg) from error
        return self._person(claims)

    async def _claims(self, begun: _Begun, answer: Mapping[str, str]) -> dict[str, Any]:
        described = await self._description()
        if "iss" not in answer and described.get("authorization_response_iss_parameter_supported"):
            raise ValueError("the issuer says that it names itself, and the answer does not")
        async with self._client() as client:
            token = await client.fetch_token(
                _endpoint(described, "token_endpoint"),
                code=answer["code"],
                code_verifier=begun.verifier,
                grant_type="authorization_code",
            )
            claims = await self._verified(str(token["id_token"]), begun.nonce, token)
            if self._table.groups not in claims and "userinfo_endpoint" in described:
                reply = await client.get(_endpoint(described, "userinfo_endpoint"))
                reply.raise_for_status()
                more = reply.json()
                if more["sub"] != claims["sub"]:
                    raise ValueError("the claims are another subject's")
                claims = {**more, **claims}
        return claims

    async def _verified(self, token: str, nonce: str, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claims of an ID token (Core, section 3.1.3.7).

        Raises:
            AuthlibBaseError, ValueError: it is not the issuer's, not for this client or this
                sign-in, or not of now.
        """
        decoder = JsonWebToken(list(self._table.algorithms))
        options = {
            "iss": {"essential": True, "value": self._table.issuer},
            "aud": {"essential": True, "value": self._table.client_id},
        }
        params = {
            "nonce": nonce,
            "client_id": self._table.client_id,
            "access_token": answer.get("access_token"),
        }

        def decoded(keys: dict[str, Any]) -> Any:
            found = JsonWebKey.import_key_set(keys)
            return decoder.decode(token, found, CodeIDToken, options, params)

        try:
            claims = decoded(await self._key_set())
        except (AuthlibBaseError, ValueError):
            # The issuer may have new keys.
            claims = decoded(await self._key_set(again=True))
        if claims.get("nonce") != nonce:
            raise ValueError("the token belongs to another sign-in")
        claims.validate(now=int(self._wall()), leeway=LEEWAY)
        return dict(claims)

    async def _description(self) -> dict[str, Any]:
        known, at = self._described
        if known and self._now() - at < KNOWN_SECONDS:
            return known
        url = self._table.issuer.rstrip("/") + "/.well-known/openid-configuration"
        try:
            found = await _fetched(url)
            if found.get("issuer") != self._table.issuer:
                raise ValueError("it names another issuer")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                _endpoint(found, name)
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            msg = f"the identity provider `{self.name}` does not answer as one: try later"
            raise SignInError(msg) from error
        self._described = found, self._now()
        return found

    async def _key_set(self, *, again: bool = False) -> dict[str, Any]:
        known, at = self._keys
        age = self._now() - at
        if not known or age >= KNOWN_SECONDS or (again and age >= REFETCH_SECONDS):
            known = await _fetched(_endpoint(await self._description(), "jwks_uri"))
            self._keys = known, self._now()
        return known

    def _client(self) -> AsyncOAuth2Client:
        return AsyncOAuth2Client(
            client_id=self._table.client_id,
            client_secret=self._secret or None,
            token_endpoint_auth_method="client_secret_basic" if self._secret else "none",
            scope=" ".join(self._table.scopes),
            redirect_uri=self._redirect(),
            code_challenge_method="S256",
            timeout=TIMEOUT,
            verify=_trust(),
        )

    def _person(self, claims: Mapping[str, Any]) -> Person:
        given = claims.get(self._table.groups, [])
        groups = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        roles = {role for group in groups for role in self._table.roles.get(str(group), ())}
        subject = str(claims["sub"])
        if not roles:
            raise SignInError("you are known, and none of your groups has a role here")
        named = claims.get(self._table.name)
        # More names make `own: refuse` stricter, so what is not verified counts as well.
        further = [claims.get(one) for one in ("email", "preferred_username", "nickname")]
        return Person(
            name=named if isinstance(named, str) and named else subject,
            roles=frozenset(roles),
            realm=self._table.issuer,
            subject=subject,
            names=frozenset(one for one in further if isinstance(one, str) and one),
        )


@lru_cache(maxsize=1)
def _trust() -> ssl.SSLContext:
    """Return the public authorities; reading them takes longer than a sign-in."""
    return httpx.create_ssl_context()


async def _fetched(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=TIMEOUT, verify=_trust()) as client:
        reply = await client.get(url)
        reply.raise_for_status()
        found = reply.json()
    if not isinstance(found, dict):
        raise TypeError("no JSON object")
    return found


def _endpoint(described: Mapping[str, Any], name: str) -> str:
    url = str(described[name])
    if not _safe(url):
        msg = f"`{name}` is no https URL"
        raise ValueError(msg)
    return url


def _safe(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.hostname) and (parts.scheme == "https" or parts.hostname in _LOOPBACK)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
