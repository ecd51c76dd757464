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
        ({"baggage": "a=b"}, None, "connection:c1", SessionRung.CONNECTION),
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


def test_all_anonymous_traffic_of_a_listener_is_one_principal():
    """An id the client chooses makes another session; an operator may name a listener's."""
    listeners = Credentials(listeners={"8080": "mail-agent"})
    assert listeners.principal(request()) is None
    for credentials, name in ((Credentials(), "anonymous"), (listeners, "mail-agent")):
        for session in "ab":
            sent = request(x_guard_session=session)
            assert identify(sent, Message(), credentials).principal == name
    assert listeners.unauthenticated("127.0.0.1:9090") == "anonymous"


@pytest.mark.parametrize(
    ("headers", "is_valid"),
    [
        ({"proxy_authorization": basic("mail-agent", "s3cret")}, True),
        ({"proxy_authorization": "Bearer s3cret"}, True),
        ({}, False),
        ({"proxy_authorization": "Bearer wrong"}, False),
        ({"proxy_authorization": basic("other-agent", "s3cret")}, False),
        ({"proxy_authorization": "Basic !!!"}, False),
        ({"proxy_authorization": "Digest s3cret"}, False),
        ({"authorization": "Bearer s3cret"}, False),
    ],
)
def test_once_credentials_exist_nobody_is_anonymous(headers, is_valid):
    """Basic and Bearer prove who it is; a missing, wrong or borrowed credential is refused."""
    sent, credentials = request(**headers), Credentials([SharedSecrets(DIGESTS)])
    if is_valid:
        identity = identify(sent, Message(), credentials)
        assert (identity.principal, identity.principal_rung) == (
            "mail-agent",
            PrincipalRung.CREDENTIAL,
        )
        return
    with pytest.raises(MessageError) as caught:
        identify(sent, Message(), credentials)
    assert (caught.value.code, caught.value.status) == ("bad_credential", 407)


@pytest.mark.parametrize(
    "values", [[""], [" "], ["a b"], ["x" * 257], ["caf\u00e9"], ["a\x7f"], ["a", "b"]]
)
def test_a_malformed_or_repeated_session_id_is_refused(values):
    """An id that other readers might trim, cut or choose among is not an id."""
    fields = tuple(("x-guard-session", value) for value in values)
    sent = HttpRequest("POST", "http", "h", "/", fields, b"", "s", "c")

    with pytest.raises(MessageError):
        identify(sent, Message(), Credentials())
