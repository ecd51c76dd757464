"""The people file, and the pages by which people sign in and out.

Each sign-in, and each that failed, is on record.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, field_validator
from starlette.responses import RedirectResponse, Response

from guard.console.access import COOKIE, Access
from guard.console.oidc import PENDING_SECONDS, OidcTable, OpenIdConnect, SignInError
from guard.console.routes import Page
from guard.credentials.certificates import read_authorities
from guard.credentials.client_authentication import ClientCertificates
from guard.operations.deployment import Body, Person, Role
from guard.settings import read_secret, read_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from guard.console.templating import Templates
    from guard.core.model import Json
    from guard.settings import Settings
    from guard.telemetry.audit_log import AuditLogFile, NoAuditLog


EVENT: Final = "guard.console_sign_in"
CALLBACK: Final = "/sign-in/oidc/callback"
_BEGUN: Final = "guard_console_oidc"


@dataclass(frozen=True, slots=True)
class SignIn:
    """Ways to sign in."""

    access: Access
    """Sessions and secrets."""
    secure: bool = False
    """True if the console is reached by TLS only."""
    oidc: OpenIdConnect | None = None
    """The identity provider."""
    holders: CertificateHolders | None = None
    """People with certificates."""


class SignInPages:
    """Signs people in: by link or secret, by certificate, by OpenID Connect.

    Args:
        ways: to sign in.
        audit: the audit log; one line per try.
        templates: of the pages.
    """

    def __init__(
        self, ways: SignIn, audit: AuditLogFile | NoAuditLog, templates: Templates
    ) -> None:
        self._ways = ways
        self._audit = audit
        self._templates = templates

    def pages(self) -> list[Page]:
        """Return the table of routes."""
        return [
            Page("/sign-in", self.form, "public"),
            Page("/sign-in/oidc", self.begin, "counted"),
            Page(CALLBACK, self.finish, "counted"),
            Page("/sign-in/{secret}", self.form, "public"),
            Page("/sign-in", self.by_secret, "counted", "POST"),
            Page("/sign-in/certificate", self.by_certificate, "counted", "POST"),
            Page("/sign-out", self.sign_out, Role.VIEWER, "POST"),
        ]

    async def form(self, request: Request) -> Response:
        """The form; a link fills it in, and is used only when it is sent."""
        return self._form(request, 200, secret=request.path_params.get("secret", ""))

    def _form(self, request: Request, status: int, *, secret: str = "", why: str = "") -> Response:
        return self._templates.shown(
            request,
            "sign_in",
            status,
            secret=secret,
            why=why,
            issuer=self._ways.oidc.name if self._ways.oidc else "",
            holder=self._holder(request),
        )

    def _holder(self, request: Request) -> Person | None:
        shown = request.state.certificate
        return self._ways.holders.person(shown) if self._ways.holders and shown else None

    async def by_secret(self, request: Request) -> Response:
        """Sign in with a link's or a person's secret."""
        person = self._ways.access.redeem("".join(request.state.form.get("secret", [])[:1]))
        if person is None:
            return self._failed(request, "this secret is not known, or the link was used")
        return self._signed_in(person)

    async def by_certificate(self, request: Request) -> Response:
        """Sign in as the holder of the certificate that the browser has shown."""
        person = self._holder(request)
        if person is None:
            return self._failed(request, "no certificate of somebody with a role was shown")
        return self._signed_in(person, request.state.certificate)

    async def begin(self, request: Request) -> Response:
        """Go to the identity provider."""
        if self._ways.oidc is None:
            return self._failed(request, "this console has no identity provider")
        try:
            url, begun = await self._ways.oidc.begin()
        except SignInError as error:
            return self._failed(request, str(error))
        return self._redirect(url, _BEGUN, begun, CALLBACK, int(PENDING_SECONDS))

    async def finish(self, request: Request) -> Response:
        """Come back from the identity provider."""
        if self._ways.oidc is None:
            return self._failed(request, "this console has no identity provider")
        begun = request.cookies.get(_BEGUN, "")
        try:
            person = await self._ways.oidc.finish(begun, dict(request.query_params))
        except SignInError as error:
            return self._failed(request, str(error))
        answer = self._signed_in(person)
        answer.delete_cookie(_BEGUN, path=CALLBACK)
        return answer

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        self._note("signed out", request.state.signed_in.person)
        self._ways.access.sign_out(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse("/sign-in", 303)
        answer.delete_cookie(COOKIE)
        return answer

    def _note(self, outcome: str, person: Person | None, why: str = "") -> None:
        """Record that a person signed in or out, or was refused.

        Raises:
            AuditError: the line cannot be written; nobody is signed in.
        """
        line: dict[str, Json] = {"outcome": outcome, **(person.fields() if person else {})}
        self._audit.event(EVENT, {**line, **({"why": why[:200]} if why else {})})

    def _failed(self, request: Request, why: str) -> Response:
        self._note("refused", None, why)
        return self._form(request, 401, why=why)

    def _signed_in(self, person: Person, certificate: bytes = b"") -> Response:
        self._note("signed in", person)
        token = self._ways.access.sign_in(person, certificate)
        return self._redirect("/", COOKIE, token, "/", None)

    def _redirect(
        self, url: str, name: str, value: str, path: str, seconds: int | None
    ) -> Response:
        """Return a redirect that sets a cookie."""
        answer = RedirectResponse(url, 303)
        answer.set_cookie(
            name, value, max_age=seconds, path=path,
            httponly=True, secure=self._ways.secure, samesite="lax",
        )  # fmt: skip
        return answer


class PersonEntry(Body):
    """Table ``[people.NAME]``: somebody with a secret."""

    secret: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    """SHA-256 of the secret, in hex."""
    roles: tuple[Role, ...]


class CertificateTable(Body):
    """Table ``[certificates]``: people whose browser shows a certificate (RFC 8446, 4.3.2)."""

    authorities: Path
    """PEM file of the authorities that they come from, beside the people file."""
    roles: Annotated[dict[str, tuple[Role, ...]], Field(min_length=1)]
    """Roles by name: the first URI, else mail address, else DNS name in the certificate."""


class PeopleFile(Body):
    """The whole file."""

    people: dict[str, PersonEntry] = Field(default_factory=dict)
    oidc: OidcTable | None = None
    certificates: CertificateTable | None = None

    @field_validator("people")
    @classmethod
    def _own_secrets(cls, value: dict[str, PersonEntry]) -> dict[str, PersonEntry]:
        if len({one.secret.lower() for one in value.values()}) != len(value):
            raise ValueError("each person has a secret of his own")
        return value


@dataclass(frozen=True, slots=True)
class CertificateHolders:
    """People known by their certificates.

    Args:
        authorities: PEM file, for the TLS handshake.
        proof: verifies a certificate and names its holder.
        roles: by name.
    """

    authorities: Path
    proof: ClientCertificates
    roles: dict[str, tuple[Role, ...]]

    def person(self, certificate: bytes) -> Person | None:
        """Return whose certificate (DER) it is, None where nobody with a role has it."""
        name = self.proof.holder((certificate,))
        roles = self.roles.get(name or "", ())
        return Person(name, frozenset(roles), "certificate") if name and roles else None


def ways_to_sign_in(settings: Settings, now: Callable[[], float]) -> SignIn:
    """Return the ways to sign in to the console of some settings, from its people file.

    Args:
        settings: of the console; without the file, only the printed link signs anybody in.
        now: seconds since the epoch, for certificates.

    Raises:
        InputError: the file, or one that it names, cannot be read or says something else.
    """
    path, found, oidc, holders = settings.console_people, PeopleFile(), None, None
    if path is not None:
        found = read_table(path, "people", PeopleFile)
        if found.oidc is not None:
            file = found.oidc.client_secret
            secret = read_secret(path.parent / file) if file else ""
            redirect = settings.console_page + CALLBACK
            oidc = OpenIdConnect(found.oidc, secret, redirect, time.monotonic)
        if found.certificates is not None:
            file = path.parent / found.certificates.authorities
            proof = ClientCertificates(read_authorities(file, "authorities"), now)
            holders = CertificateHolders(file, proof, found.certificates.roles)
    people = {
        one.secret.lower(): Person(name, frozenset(one.roles)) for name, one in found.people.items()
    }
    secure = settings.console_certificate is not None or settings.console_url.startswith("https:")
    return SignIn(Access(people, time.monotonic), secure, oidc, holders)
