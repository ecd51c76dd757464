"""What an Envoy in front says is believed only where no client can have said it."""

import datetime as dt
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from guard.core.errors import MessageError
from guard.pep.envoy.front import Front
from guard.pep.lean.messages import RequestRead
from guard.settings import Listener

MAIL = Listener.parse_named("clerk@mail=http://127.0.0.1:9000/mcp")
FILES = Listener.parse_named("files=https://files.test")
SAID = ("x-guard-server", "x-guard-connection", "x-guard-front", "x-forwarded-client-cert")


def request(*fields):
    """Return a request with these fields."""
    coded = tuple((name.encode(), value.encode("latin-1")) for name, value in fields)
    return RequestRead("POST", "/mcp", coded, b"{}", True, True, False)


def certificate():
    """Return a certificate in PEM."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    made = made.public_key(key.public_key()).not_valid_before(now)
    built = made.not_valid_after(now + dt.timedelta(days=1)).sign(key, hashes.SHA256())
    return built.public_bytes(serialization.Encoding.PEM)


def test_the_route_says_which_server_and_the_connection_which_client():
    """None of it goes on; what the client says itself does, in its spelling and order."""
    front = Front([MAIL, FILES])
    said = request(
        ("Host", "a.test"),
        ("x-guard-server", "files"),
        ("X-Guard-Session", "s1"),
        ("x-guard-connection", "10.0.0.1:5/7"),
        ("x-forwarded-proto", "https"),
        ("x-envoy-expected-rq-timeout-ms", "0"),
    )

    server, kept, told = front.admit(said)

    assert server is FILES
    assert kept.fields == ((b"Host", b"a.test"), (b"X-Guard-Session", b"s1"))
    assert (told.connection, told.secure, told.certificates) == ("10.0.0.1:5/7", True, ())


def test_a_server_is_called_by_its_name_everywhere():
    """For its endpoint, principal and credential; audit lines and pins call it `decide:mail`."""
    assert (MAIL.key, MAIL.principal) == ("mail", "clerk")
    assert (MAIL.upstream, MAIL.endpoint) == ("http://127.0.0.1:9000", "/mcp")


@pytest.mark.parametrize("name", [None, "mailx", "MAIL", ""])
def test_a_route_that_names_no_server_leads_nowhere(name):
    """A guess would be another server's tool."""
    fields = () if name is None else (("x-guard-server", name),)

    with pytest.raises(MessageError) as caught:
        Front([MAIL, FILES]).admit(request(*fields))

    assert caught.value.code == "unknown_path"


def test_one_server_needs_no_name():
    """There is nothing to choose."""
    assert Front([MAIL]).admit(request())[0] is MAIL


@given(st.sampled_from(SAID), st.text("abc", max_size=3), st.text("abc", max_size=3))
def test_what_a_client_may_have_said_as_well_is_refused(name, own, envoys):
    """Two values: Envoy appends, and one of them is the client's."""
    said = request((name, own), (name.upper(), envoys))

    with pytest.raises(MessageError) as caught:
        Front([MAIL]).admit(said)

    assert caught.value.code == "duplicate_header"


@pytest.mark.parametrize("shown", [None, "", "s3cre", "s3cret2", "S3CRET"])
def test_without_the_secret_nobody_is_the_envoy(shown):
    """Whoever reaches the port could otherwise say who anybody is."""
    fields = () if shown is None else (("x-guard-front", shown),)

    with pytest.raises(MessageError) as caught:
        Front([MAIL], "s3cret").admit(request(*fields))

    assert (caught.value.code, caught.value.status) == ("bad_credential", 403)
    assert Front([MAIL], "s3cret").admit(request(("x-guard-front", "s3cret")))[0] is MAIL


def test_a_chain_comes_out_as_der():
    """Leaf first, as Envoy has URL-encoded it."""
    chain = certificate() + certificate()
    said = f'By=spiffe://x;Hash=00;Chain="{quote(chain.decode())}"'

    told = Front([MAIL]).admit(request(("x-forwarded-client-cert", said)))[2]

    found = [x509.load_der_x509_certificate(one) for one in told.certificates]
    assert found == x509.load_pem_x509_certificates(chain)


@pytest.mark.parametrize(
    "said",
    [
        'Hash=1;Chain="a",Hash=2;Chain="b"',
        'Chain="-----BEGIN CERTIFICATE-----%0AAAA%0A-----END CERTIFICATE-----"',
        'Chain="a";',
        "nonsense",
    ],
    ids=["two elements", "no base64", "open end", "no pair"],
)
def test_a_chain_that_can_be_read_two_ways_is_refused(said):
    """An Envoy that appends passes on what clients say of themselves."""
    with pytest.raises(MessageError) as caught:
        Front([MAIL]).admit(request(("x-forwarded-client-cert", said)))

    assert caught.value.code == "bad_credential"


@pytest.mark.parametrize("name", ["a b", "a" * 300, "\xe9"])
def test_a_connection_has_a_name_that_can_be_written_down(name):
    """It becomes part of the session's."""
    with pytest.raises(MessageError):
        Front([MAIL]).admit(request(("x-guard-connection", name)))
