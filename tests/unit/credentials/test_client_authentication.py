"""Who a client is, proven by a secret, a token or a certificate, and of which tenant."""

import hashlib
import json

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from guard.core.errors import GuardError, MessageError
from guard.credentials.client_authentication import load_proofs, load_tenants
from guard.pipeline.identity import Credentials
from guard.protocols.http.message import HttpRequest
from tests.e2e.tls_upstream import issue

NOW = 1_900_000_000.0
AGENT = "spiffe://agents.test/scribe"
KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
TOKENS = '[tokens]\nissuer = "https://id.test"\naudience = "guard"\nkeys = "keys.json"\n'


def public_pem(key):
    """Return a public key in PEM."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def key_set(**keys):
    """Return a JWK Set of public keys."""
    made = (
        {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": name}
        for name, key in keys.items()
    )
    return json.dumps({"keys": list(made)})


def token(key=KEY, *, algorithm="ES256", kid="k1", **changes):
    """Return a signed token that holds, or one that these changes spoil."""
    claims = {"iss": "https://id.test", "aud": "guard", "sub": "scribe", "exp": 4_000_000_000}
    claims = {name: value for name, value in (claims | changes).items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": kid})


def request(header=None, certificates=()):
    """Return a request that brings these proofs."""
    headers = (("proxy-authorization", header),) if header else ()
    at = ("POST", "http", "tools:80", "/mcp")
    return HttpRequest(*at, headers, b"", "127.0.0.1:8080", "c1", certificates=certificates)


def credentials_file(directory, text):
    """Return a credentials file."""
    path = directory / "principals.toml"
    path.write_text(text, "utf-8")
    return path


def credentials(directory, text, now=lambda: NOW):
    """Return what a credentials file makes."""
    return Credentials(load_proofs(credentials_file(directory, text), now))


@pytest.fixture
def tokens(tmp_path):
    """Tokens of one issuer, with two keys."""
    (tmp_path / "keys.json").write_text(key_set(k1=KEY, k2=OTHER), "utf-8")
    return credentials(tmp_path, TOKENS)


@pytest.mark.parametrize(
    "spoilt",
    [
        token(OTHER),
        token(KEY, kid="k2"),
        token(KEY, kid="unknown"),
        token(iss="https://elsewhere.test"),
        token(aud="another"),
        token(exp=1),
        token(exp=None),
        token(nbf=3_999_999_999),
        token(sub=None),
        token(sub="two words"),
        token("x" * 32, algorithm="HS256"),
        jwt.encode({"iss": "https://id.test", "aud": "guard", "sub": "scribe"}, None, "none"),
        token()[:-4],
        "a.b.c",
        "x" * 20_000,
    ],
)
def test_a_token_that_does_not_hold_proves_nobody(tokens, spoilt):
    """Another key, issuer, audience, algorithm or time; no expiry; no name; no token."""
    with pytest.raises(MessageError, match="credential") as refused:
        tokens.principal(request(f"Bearer {spoilt}"))
    assert refused.value.code == "bad_credential"


def test_a_public_key_is_no_shared_secret(tmp_path):
    """The classic: the public key, which everybody has, used to sign with HMAC."""
    (tmp_path / "keys.json").write_bytes(public_pem(KEY))
    known = credentials(tmp_path, TOKENS)
    header = jwt.utils.base64url_encode(b'{"alg":"HS256","typ":"JWT"}')
    claims = {"iss": "https://id.test", "aud": "guard", "sub": "scribe", "exp": 4_000_000_000}
    signed = header + b"." + jwt.utils.base64url_encode(json.dumps(claims).encode())
    mac = jwt.algorithms.HMACAlgorithm(hashlib.sha256).sign(signed, public_pem(KEY))
    forged = signed + b"." + jwt.utils.base64url_encode(mac)

    assert known.principal(request(f"Bearer {token()}")) == "scribe"
    with pytest.raises(MessageError):
        known.principal(request(f"Bearer {forged.decode()}"))


def test_a_token_is_not_remembered_beyond_its_time(tmp_path):
    """What was verified once ends when the token says so."""
    (tmp_path / "keys.json").write_bytes(public_pem(KEY))
    clock = [NOW]
    known = credentials(tmp_path, TOKENS, lambda: clock[0])
    brought = request(f"Bearer {token(exp=3_000_000_000)}")
    assert known.principal(brought) == "scribe"
    known.proofs[0]._keys.clear()
    brought.forget_proof()
    assert known.principal(brought) == "scribe"

    clock[0] = 3_000_000_001.0
    brought.forget_proof()
    with pytest.raises(MessageError):
        known.principal(brought)


def chain(path):
    """Return what a client with this chain file shows."""
    found = x509.load_pem_x509_certificates(path.read_bytes())
    return tuple(one.public_bytes(serialization.Encoding.DER) for one in found)


def test_a_certificate_of_a_known_authority_names_the_principal(tmp_path):
    """Its first URI, before its DNS name; and a certificate for servers is none for clients."""
    client = ExtendedKeyUsageOID.CLIENT_AUTH
    mine = chain(issue(tmp_path / "ca.pem", "host.test", AGENT, usage=client))
    strangers = chain(issue(tmp_path / "other.pem", AGENT, usage=client))
    servers = chain(issue(tmp_path / "server.pem", AGENT))
    pem = (tmp_path / "ca.pem").read_bytes() + (tmp_path / "server.pem").read_bytes()
    (tmp_path / "both.pem").write_bytes(pem)
    now = x509.load_der_x509_certificate(mine[0]).not_valid_before_utc.timestamp() + 100_000
    clock = [now]
    text = '[client_certificates]\nauthorities = "both.pem"\n'
    known = credentials(tmp_path, text, lambda: clock[0])

    assert [known.principal(request(certificates=mine)) for _ in range(2)] == [AGENT, AGENT]
    for shown in ((), strangers, servers, (b"no certificate",), (*strangers, *mine)):
        with pytest.raises(MessageError):
            known.principal(request(certificates=shown))
    clock[0] = now + 40 * 86_400
    with pytest.raises(MessageError):
        known.principal(request(certificates=mine))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('clerk = "s3cret"', "clerk"),
        ("[sessions]\n", "`sessions`"),
        ('[tokens]\nissuer = "a"\n', "audience"),
        (TOKENS + 'algorithms = ["HS256"]\n', "algorithms"),
        (TOKENS.replace("keys.json", "missing.json"), "JWK Set"),
        (TOKENS.replace("keys.json", "symmetric.json"), "public keys only"),
        (TOKENS.replace("keys.json", "private.json"), "public keys only"),
        (TOKENS.replace("keys.json", "twice.json"), "kid"),
        ('[client_certificates]\nauthorities = "keys.json"\n', "no certificate"),
        ("clerk = ", "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(tmp_path, text, complaint):
    """At start, with what is wrong."""
    (tmp_path / "keys.json").write_text(key_set(k1=KEY), "utf-8")
    one = json.loads(key_set(k1=KEY))["keys"][0]
    (tmp_path / "twice.json").write_text(json.dumps({"keys": [one, one]}), "utf-8")
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I", "kid": "k1"}
    (tmp_path / "symmetric.json").write_text(json.dumps({"keys": [secret]}), "utf-8")
    private = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY)), "kid": "k1"}
    (tmp_path / "private.json").write_text(json.dumps({"keys": [private]}), "utf-8")

    with pytest.raises(GuardError, match=complaint):
        credentials(tmp_path, text)


SECRET = f'alice = "{"0" * 64}"\n'
TABLES = """
[tenants.research]
principals = ["research-*", "alice"]

[tenants.support]
principals = ["support-*", {re2 = "help[0-9]+"}, "research-9"]
shards = 8
"""


@pytest.fixture
def written(tmp_path):
    """Return a credentials file with two tables."""
    return credentials_file(tmp_path, SECRET + TABLES)


def test_the_first_table_that_names_a_principal_counts(written):
    """Who is in none is of the default tenant."""
    tenants = load_tenants(written)

    found = {who: tenants.of(who) for who in ("alice", "research-1", "research-9", "bob")}

    assert found == {
        "alice": "research",
        "research-1": "research",
        "research-9": "research",
        "bob": "default",
    }


def test_a_sharded_tenant_s_principals_are_spread_and_stay_where_they_are(written):
    """By name alone, so that every worker and every start says the same."""
    tenants, again = load_tenants(written), load_tenants(written)
    who = [f"support-{n}" for n in range(200)]

    found = [tenants.of(one) for one in who]

    assert set(found) == {f"support.{n}" for n in range(8)}
    assert found == [again.of(one) for one in who]
    assert (tenants.of("help7"), tenants.of("support-0")) == ("support.5", "support.7")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[tenants.a]\nprincipals = []\n", "tenants.a.principals"),
        ("[tenants.a]\nprincipals = ['[x]']\n", "tenants.a.principals"),
        ("[tenants.a]\nprincipals = ['x']\nshards = 0\n", "tenants.a.shards"),
        ("[tenants.a]\nprincipals = ['x']\nshards = 257\n", "tenants.a.shards"),
        ("[tenants.a]\nprincipals = ['x']\nshard = 2\n", "tenants.a.shard"),
        ("[tenants.'a.1']\nprincipals = ['x']\n", "tenants.a.1"),
        ("tenants = 7\n", "tenants."),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(tmp_path, text, place):
    """The guard does not start: a principal in the wrong tenant would be without its labels."""
    with pytest.raises(GuardError, match=f"`{place}"):
        load_tenants(credentials_file(tmp_path, text))


def test_tenants_are_of_principals_that_prove_who_they_are(tmp_path):
    """Without proofs everybody is anonymous, and one."""
    with pytest.raises(GuardError, match="prove who they are"):
        credentials(tmp_path, TABLES)
