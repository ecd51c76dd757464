"""Who calls, and how that is known: ids separate, and never widen."""

import base64
import hashlib

import pytest

from guard.core.errors import MessageError
from guard.core.model import PrincipalRung, SessionRung
from guard.pipeline.identity import Credentials, SharedSecrets, identify
from guard.protocols.http.message import HttpRequest
from guard.protocols.messages import Message

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DIGESTS = {"mail-agent": hashlib.sha256(b"s3cret").hexdigest()}


def request(**headers):
    """Return a request with these headers (underscores stand for dashes)."""
    fields = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return HttpRequest("POST", "http", "tools:80", "/mcp", fields, b"", "127.0.0.1:8080", "c1")


def basic(name, secret):
    """Return a Basic credential."""
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


@pytest.mark.parametrize(
    ("headers", "meta", "session", "rung"),
    [
        ({}, None, "connection:c1", SessionRung.CONNECTION),
        (
            {"traceparent": TRACEPARENT},
            None,
            "0af7651916cd43dd8448eb211c80319c",
            SessionRung.TRACEPARENT,
        ),
        ({"traceparent": "garbage"}, None, "connection:c1", SessionRung.CONNECTION),
        ({"baggage": "a=b, session.id=s9;p=1"}, None, "s9", SessionRung.META),
        ({"baggage": "session.id=s9"}, "m1", "m1", SessionRung.META),
        ({"mcp_session_id": "x1"}, "m1", "x1", SessionRung.MCP_SESSION),
        (
            {"mcp_session_id": "x1", "x_guard_session": "g1", "traceparent": TRACEPARENT},
            "m1",
            "g1",
            SessionRung.GUARD_HEADER,
        ),
    ],
)
def test_the_strongest_session_key_is_taken_and_its_rung_recorded(headers, meta, session, rung):
    """The ladder of the design, rung by rung."""
    identity = identify(request(**headers), Message(session_id=meta), Credentials())

    assert (identity.session, identity.session_rung) == (session, rung)


def test_a_proved_principal_s_tenant_is_looked_up_and_nobody_else_s():
    """Whatever an unproved one is called, it is of the default tenant."""
    proofs, shown = [SharedSecrets(DIGESTS)], request(proxy_authorization="Bearer s3cret")
    named = {"8080": "mail-agent"}

    tenants = [
        identify(shown, Message(), Credentials(proofs, tenant_of="of-{}".format)).tenant,
        identify(shown, Message(), Credentials(proofs)).tenant,
        identify(request(), Message(), Credentials((), named, tenant_of="of-{}".format)).tenant,
    ]

    assert tenants == ["of-mail-agent", "default", "default"]


def test_all_anonymous_traffic_is_one_principal():
    """An id the client chooses makes another session, never another principal."""
    names = {
        identify(request(x_guard_session=s), Message(), Credentials()).principal
        for s in ("a", "b", "c")
    }

    assert names == {"anonymous"}


@pytest.mark.parametrize("header", [basic("mail-agent", "s3cret"), "Bearer s3cret"])
def test_a_valid_credential_names_the_principal(header):
    """Basic and Bearer prove who it is."""
    identity = identify(
        request(proxy_authorization=header), Message(), Credentials([SharedSecrets(DIGESTS)])
    )

    assert identity.principal == "mail-agent"
    assert identity.principal_rung is PrincipalRung.CREDENTIAL


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"proxy_authorization": "Bearer wrong"},
        {"proxy_authorization": basic("other-agent", "s3cret")},
        {"proxy_authorization": "Basic !!!"},
        {"proxy_authorization": "Digest s3cret"},
        {"authorization": "Bearer s3cret"},
    ],
)
def test_once_credentials_exist_nobody_is_anonymous(headers):
    """A missing, wrong or borrowed credential is refused, not downgraded."""
    with pytest.raises(MessageError) as caught:
        identify(request(**headers), Message(), Credentials([SharedSecrets(DIGESTS)]))

    assert (caught.value.code, caught.value.status) == ("bad_credential", 407)


@pytest.mark.parametrize("value", ["", " ", "a b", "x" * 257, "caf\u00e9", "a\x7f"])
def test_a_malformed_session_id_is_refused(value):
    """An id that other readers might trim or cut is not an id."""
    with pytest.raises(MessageError):
        identify(request(x_guard_session=value), Message(), Credentials())


def test_a_repeated_session_header_is_refused():
    """Two values could be read either way."""
    fields = (("x-guard-session", "a"), ("x-guard-session", "b"))
    doubled = HttpRequest("POST", "http", "h", "/", fields, b"", "s", "c")

    with pytest.raises(MessageError):
        identify(doubled, Message(), Credentials())


def test_an_operator_can_name_the_principal_of_a_listener():
    """Two agents on two listeners need not share a past."""
    credentials = Credentials(listeners={"8080": "mail-agent"})

    assert identify(request(), Message(), credentials).principal == "mail-agent"
    assert credentials.unauthenticated("127.0.0.1:9090") == "anonymous"
