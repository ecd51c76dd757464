"""Signing in with OpenID Connect: the authorization code flow with PKCE, state and nonce.

OpenID Connect Core 1.0 (section 3.1), Discovery 1.0, RFC 7636 (PKCE, S256), RFC 9207 (the issuer in
the answer).  Authlib speaks the protocol and verifies the ID token; what is here binds an answer to
the browser that began, and turns claims into a person with roles.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import httpx
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import StarletteOAuth2App
from pydantic import Field, field_validator

from guard.console.access import digest_of, is_private_in_transit
from guard.core.errors import GuardError
from guard.operations.deployment import Body, Person, Role

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

PENDING: Final = 1000
"""Sign-ins that have begun and not come back; of more, the oldest go."""
PENDING_SECONDS: Final = 600.0
TIMEOUT: Final = 5.0
LEEWAY: Final = 60
_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
"""Public-key signatures only: who can verify a token must not be able to make one."""


class OidcTable(Body):
    """Table ``[oidc]`` of the people file."""

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
        if not is_private_in_transit(value):
            raise ValueError("an issuer is an https URL")
        return value


class SignInError(GuardError):
    """A sign-in that did not succeed, and why, in words for the person."""


class OpenIdConnect:
    """One issuer that people sign in with.

    Its description and keys are read anew for each sign-in.

    Args:
        table: of the people file.
        secret: of the client; empty for a public client.
        redirect: the URL that the issuer sends people back to.
        monotonic: seconds, for what lasts a while.
    """

    def __init__(
        self,
        table: OidcTable,
        secret: str,
        redirect: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._table = table
        self._secret = secret
        self._redirect = redirect
        self._now = monotonic
        self._begun: OrderedDict[bytes, tuple[float, Any, dict[str, str]]] = OrderedDict()
        """End, client, and secrets of each sign-in that has begun, by the digest of its cookie."""

    @property
    def name(self) -> str:
        """The issuer's host, for people."""
        return urlsplit(self._table.issuer).netloc

    async def begin(self) -> tuple[str, str]:
        """Return the URL to send a browser to, and the secret that its cookie keeps.

        Raises:
            SignInError: the issuer does not answer.
        """
        try:
            app = self._app(await self._description())
            begun = await app.create_authorization_url(self._redirect)
        except (AuthlibBaseError, httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise SignInError(
                f"the identity provider `{self.name}` does not answer as one: try later"
            ) from error
        cookie = secrets.token_urlsafe(32)
        self._begun[digest_of(cookie)] = self._now() + PENDING_SECONDS, app, begun
        while len(self._begun) > PENDING:
            self._begun.popitem(last=False)
        return begun["url"], cookie

    async def finish(self, cookie: str, answer: Mapping[str, str]) -> Person:
        """Return the person who has come back.

        Args:
            cookie: secret that :meth:`begin` gave to this browser; it is good once.
            answer: the query that the issuer sent the browser back with.

        Raises:
            SignInError: this browser has not begun, the issuer refused, or its answer is not sound.
        """
        until, app, begun = self._begun.pop(digest_of(cookie), (0.0, None, {}))
        if app is None or self._now() > until:
            raise SignInError("this browser has not begun to sign in, or took too long: again")
        if not hmac.compare_digest(answer.get("state", "").encode(), begun["state"].encode()):
            raise SignInError("the answer belongs to another sign-in")
        named = not app.server_metadata["authorization_response_iss_parameter_supported"]
        if answer.get("iss", self._table.issuer if named else "") != self._table.issuer:
            raise SignInError("the answer is another issuer's")
        if "error" in answer or not answer.get("code"):
            raise SignInError("the identity provider did not sign you in")
        try:
            claims = await self._claims(app, begun, answer["code"])
        except (AuthlibBaseError, httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise SignInError(
                f"the identity provider's answer is not sound ({type(error).__name__})"
            ) from error
        return self._person(claims)

    async def _claims(self, app: Any, begun: Mapping[str, str], code: str) -> dict[str, Any]:
        """Return the claims of an ID token (Core, section 3.1.3.7) and of its user.

        Raises:
            AuthlibBaseError, ValueError: the token is not the issuer's, not for this client or this
                sign-in, or not of now.
        """
        token = await app.fetch_access_token(
            self._redirect,
            code=code,
            code_verifier=begun["code_verifier"],
            grant_type="authorization_code",
        )
        options = {
            "iss": {"essential": True, "value": self._table.issuer},
            "aud": {"essential": True, "value": self._table.client_id},
        }
        nonce = begun["nonce"]
        claims = await app.parse_id_token(token, nonce, options, leeway=LEEWAY)
        if claims.get("nonce") != nonce:
            raise ValueError("the token belongs to another sign-in")
        if self._table.groups not in claims and "userinfo_endpoint" in app.server_metadata:
            more = await app.userinfo(token=token)
            if more["sub"] != claims["sub"]:
                raise ValueError("the claims are another subject's")
            claims = {**more, **claims}
        return dict(claims)

    async def _description(self) -> dict[str, Any]:
        """Return the parts of the issuer's description that a sign-in uses.

        Raises:
            ValueError: it names another issuer, or an endpoint in clear.
        """
        url = self._table.issuer.rstrip("/") + "/.well-known/openid-configuration"
        async with httpx.AsyncClient(timeout=TIMEOUT, verify=_trust()) as client:
            found = (await client.get(url)).raise_for_status().json()
        urls = {name: str(found[name]) for name in _ENDPOINTS}
        if "userinfo_endpoint" in found:
            urls["userinfo_endpoint"] = str(found["userinfo_endpoint"])
        if found["issuer"] != self._table.issuer or not all(
            map(is_private_in_transit, urls.values())
        ):
            raise ValueError("it names another issuer, or an endpoint in clear")
        promised = "authorization_response_iss_parameter_supported"
        algorithms = list(self._table.algorithms)
        rest = {"id_token_signing_alg_values_supported": algorithms, promised: found.get(promised)}
        return {**urls, **rest}

    def _app(self, described: Mapping[str, Any]) -> Any:
        return StarletteOAuth2App(
            None,
            client_id=self._table.client_id,
            client_secret=self._secret or None,
            client_kwargs={
                "token_endpoint_auth_method": "client_secret_basic" if self._secret else "none",
                "scope": " ".join(self._table.scopes),
                "code_challenge_method": "S256",
                "timeout": TIMEOUT,
                "verify": _trust(),
            },
            **described,
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
