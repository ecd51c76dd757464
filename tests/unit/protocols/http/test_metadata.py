"""Which header values and paths are ordinary: the quick test agrees with the whole one."""

import base64
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from guard.protocols.http import metadata
from guard.protocols.http.message import HttpRequest
from guard.protocols.http.metadata import credential_identity, request_context


def _agree(value):
    return metadata._SHORT.fullmatch(value) is None or metadata._is_plain(value)


@settings(max_examples=100)
@given(st.from_regex(r"/?[A-Za-z0-9-]{0,12}", fullmatch=True))
@example("jailbreak")
def test_no_short_value_is_more_than_it_looks(value):
    """What is passed without a look has nothing in it that the look would find."""
    assert _agree(value)


@pytest.mark.parametrize(
    "value", ["AKIAIOSFODNN7EXAMPLE", "/.env", "aWdub3JlIGFsbA==", "a" * 11 + "b", "rm -rf /"]
)
def test_what_may_be_more_is_looked_at(value):
    """The quick test speaks for none of them."""
    assert metadata._SHORT.fullmatch(value) is None


def token(signature="c2ln", **claims):
    """Return a bearer credential with some claims."""
    parts = ({"alg": "RS256"}, claims)
    head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return f"Bearer {head.rstrip('=')}.{body.rstrip('=')}.{signature}"


SUBJECT = {"iss": "https://id.test", "sub": "alice", "aud": "mail", "scope": "send"}
AWS = (
    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{day}/us-east-1/s3/aws4_request, "
    "SignedHeaders=host;x-amz-date, Signature={signature}"
)
OAUTH = (
    'OAuth oauth_consumer_key="{key}", oauth_token="t", oauth_nonce="{nonce}", '
    'oauth_timestamp="{time}", oauth_signature="{nonce}%3D"'
)
DIGEST = (
    'Digest username="{user}", realm="r", nonce="{nonce}", uri="/a", nc=00000001, '
    'cnonce="{nonce}", response="{nonce}"'
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (token(**SUBJECT, exp=1, jti="a"), token("b3Ro", **SUBJECT, exp=2, jti="b", iat=5)),
        (
            AWS.format(day="20260101", signature="a" * 64),
            AWS.format(day="20260102", signature="b" * 64),
        ),
        (OAUTH.format(key="k", nonce="n1", time=1), OAUTH.format(key="k", nonce="n2", time=2)),
        (DIGEST.format(user="u", nonce="n1"), DIGEST.format(user="u", nonce="n2")),
        ("Bearer opaque-token", "Bearer opaque-token"),
    ],
    ids=["refreshed token", "aws", "oauth 1", "digest", "opaque"],
)
def test_a_credential_that_is_made_anew_is_the_same_one(one, other):
    """A token that was refreshed for its subject, a request that was signed again."""
    assert credential_identity(one) == credential_identity(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(
            (token(**SUBJECT), token(**{**SUBJECT, claim: "other"}))
            for claim in ("iss", "sub", "aud", "scope")
        ),
        *(
            (token(**SUBJECT), token(**SUBJECT, **{claim: "x"}))
            for claim in ("azp", "client_id", "tid", "scp")
        ),
        (token(aud="mail", jti="a"), token(aud="mail", jti="b")),
        ("Bearer opaque-1", "Bearer opaque-2"),
        ("Bearer a.b.c", "Bearer a.b.d"),
        ("Basic YTpi", "Basic YTpj"),
        (
            AWS.format(day="20260101", signature="a"),
            AWS.format(day="20260101", signature="a").replace("AKIDEXAMPLE", "AKIDOTHER00"),
        ),
        (OAUTH.format(key="k", nonce="n", time=1), OAUTH.format(key="l", nonce="n", time=1)),
        (DIGEST.format(user="u", nonce="n"), DIGEST.format(user="v", nonce="n")),
        (token(**SUBJECT), token(**SUBJECT).replace("Bearer", "Basic")),
    ],
)
def test_another_credential_is_another_one(one, other):
    """Whose it is, who gave it, for what, through whom; all of a token without a subject."""
    assert credential_identity(one) != credential_identity(other)


def request(*, chosen=False, target="/mcp", **headers):
    """Return a request with some headers, ``_`` for ``-`` in their names."""
    fields = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return HttpRequest(
        "POST", "https", "tools.test", target, fields, b"{}", "l", "c", chosen=chosen
    )


VARYING = [
    (
        "x_request_id",
        "8f14e45f-ceea-467a-9575-6eeb5d0a7ba4",
        "1c383cd3-0b7c-498a-87c2-0f2b4f0a0f5e",
    ),
    (
        "traceparent",
        "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        "00-" + "c" * 32 + "-" + "d" * 16 + "-00",
    ),
    ("x_retry_count", "0", "3"),
    ("amz_sdk_request", "attempt=1; max=3", "attempt=2; max=3"),
    ("x_amz_date", "20260101T000000Z", "20260101T000007Z"),
    ("date", "Thu, 01 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 2026 00:00:07 GMT"),
    ("idempotency_key", "a" * 32, "b" * 32),
    ("baggage", "k=v", "k=w"),
    (
        "x_amzn_trace_id",
        "Root=1-67891233-abcdef012345678912345678",
        "Root=1-67891234-abcdef012345678912345679",
    ),
]


@pytest.mark.parametrize(("name", "one", "other"), VARYING, ids=[row[0] for row in VARYING])
def test_what_differs_in_every_retry_is_no_part_of_a_request(name, one, other):
    """In the form that clients draw it in."""
    assert request_context(request(**{name: one})) == request_context(request(**{name: other}))
    assert request_context(request(**{name: one})) == request_context(request())


@pytest.mark.parametrize(
    "headers",
    [
        {"x_account": "2"},
        {"cookie": "account=2"},
        {"authorization": "Bearer other"},
        {"x_correlation_id": "drop@evil.test"},
        {"target": "/mcp?account=2"},
        {"target": "/mcp/other"},
    ],
    ids=str,
)
def test_what_a_request_says_besides_is_part_of_it(headers):
    """Another account, another credential, another place."""
    assert request_context(request(**headers)) != request_context(request())


def test_where_an_agent_chose_the_host_a_refreshed_token_is_another():
    """Nobody says that the host checks it."""
    tokens = token(**SUBJECT, exp=1), token(**SUBJECT, exp=2)

    same, chosen = (
        {request_context(request(chosen=is_chosen, authorization=one)) for one in tokens}
        for is_chosen in (False, True)
    )
    assert (len(same), len(chosen)) == (1, 2)
