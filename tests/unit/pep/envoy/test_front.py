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


CHAIN = "x-forwarded-client-cert"


@pytest.mark.parametrize(
    ("servers", "fields", "code"),
    [
        ([MAIL], [], None),
        ([MAIL, FILES], [], "unknown_path"),
        *(([MAIL, FILES], [("x-guard-server", n)], "unknown_path") for n in ("mailx", "MAIL", "")),
        ([MAIL], [(CHAIN, 'Hash=1;Chain="a",Hash=2;Chain="b"')], "bad_credential"),
        (
            [MAIL],
            [(CHAIN, 'Chain="-----BEGIN CERTIFICATE-----%0AAAA%0A-----END CERTIFICATE-----"')],
            "bad_credential",
        ),
        ([MAIL], [(CHAIN, 'Chain="a";')], "bad_credential"),
        ([MAIL], [(CHAIN, "nonsense")], "bad_credential"),
        *(
            ([MAIL], [("x-guard-connection", name)], "bad_session_id")
            for name in ("a b", "a" * 300, "\xe9")
        ),
    ],
)
def test_what_can_be_read_two_ways_is_refused(servers, fields, code):
    """No guess at a server, no chain that a client may have named; one server needs no name."""
    if code is None:
        assert Front(servers).admit(request(*fields))[0] is MAIL
        return
    with pytest.raises(MessageError) as caught:
        Front(servers).admit(request(*fields))

    assert caught.value.code == code
