"""The detector of secrets: two public rule sets, in every coding, with redaction."""

import random
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.argument_texts import argument_texts, without_spans
from guard.core.calls import ClassifiedCall
from guard.core.model import Identity, Role, ToolCall
from guard.core.trajectory import Snapshot
from guard.detectors import DetectorResources
from guard.detectors.secrets import Secrets, secrets_in
from guard.values.secret_rules import SecretRule, SecretRules
from tests.codings import CODINGS

TOKEN = "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"
DRAWN = string.ascii_letters + string.digits


def look(arguments):
    """Return the kinds of secrets in arguments."""
    return set(secrets_in(arguments)[0])


def drawn(length, alphabet=DRAWN, seed=1):
    """Return random characters, the same for a seed."""
    draw = random.Random(seed)
    return "".join(draw.choice(alphabet) for _ in range(length))


FORMS = {
    "AWS": f"AKIA{drawn(16, string.ascii_uppercase + '234567')}",
    "AWS example": "AKIAIOSFODNN7EXAMPLE",
    "GitHub": f"ghp_{drawn(36)}",
    "GitLab": f"glpat-{drawn(20)}",
    "Stripe": f"sk_live_{drawn(24)}",
    "SendGrid": f"SG.{drawn(22)}.{drawn(43)}",
    "npm": f"npm_{drawn(36)}",
    "Slack": f"https://hooks.slack.com/services/T{drawn(8)}/B{drawn(8)}/{drawn(24)}",
    "Softlayer": "softlayer_api_key: " + "0a1b2c3d" * 8,
    "Mailchimp": "0a1b2c3d" * 4 + "-us12",
    "token": f"eyJhbGciOiJIUzI1NiJ9.eyJ{drawn(20)}.{drawn(30)}",
    "named": f'client_secret = "{drawn(40)}"',
    "login": f"postgres://svc:{drawn(14)}@db.internal/app",
    "key": f"-----BEGIN PRIVATE KEY-----\n{drawn(64)}\n{drawn(40)}\n-----END PRIVATE KEY-----",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found_in_every_coding(form):
    """Both rule sets run over all readings."""
    secret = FORMS[form]
    assert look({"body": f"use {secret} for it"})
    assert [name for name in CODINGS if not look({"body": CODINGS[name](secret)})] == []


def test_the_name_of_an_argument_is_context():
    """A random value is a secret where its name says so, and not elsewhere."""
    value = drawn(32)
    assert look({"api_key": value})
    assert not look({"colour": value})


def test_a_rule_that_does_not_compile_is_refused():
    """An error at start, not at a call."""
    with pytest.raises(ValueError, match="not an RE2 expression"):
        SecretRules([SecretRule("back", r"(a)\1")])


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_floats_are_not_secrets(numbers):
    """Neither alone nor in a document."""
    assert not look({"values": str(numbers), "body": " ".join(map(repr, numbers))})


@given(
    st.lists(
        st.text(string.ascii_lowercase + string.digits + "._-", min_size=1, max_size=12),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["", "~/", "/", "./", "/srv/ada/", "C:/"]),
)
def test_paths_are_not_secrets(parts, root):
    """Dot folders are names."""
    path = root + "/".join((".ssh", *parts, ".env"))
    assert not look({"path": path, "command": f"ls {path}"})


@pytest.mark.parametrize(
    "text",
    [
        "550e8400-e29b-41d4-a716-446655440000",
        "https://shop.example/items?category=a&brand=b&min=100&max=2000&page=3",
        "token_count=1200, api_version=2024-06-01",
        "<password>${DB_PASSWORD_1}</password>",
        "integrity: sha512-POZf09fLAxHA5m5GsR91yg92svvUBLuWzK1tzzEjzjW7dTkWpSxNs84rlUHcOjt",
        "re-exports 12 functions; the api_key_id and the encryption_key_name stay in the config",
    ],
)
def test_everyday_text_has_no_secret(text):
    """Operators switch a detector with false alarms off."""
    assert not look({"body": text, "password": "to be told by phone"})


def inspect(arguments):
    """Return the findings of the detector for a call."""
    call = ToolCall("id", Identity("p", "s"), "mail_send", arguments, "mcp", 0.0)
    return Secrets.create(DetectorResources()).inspect(ClassifiedCall(call, Role.SEND), Snapshot())


CODED = CODINGS["base64"](TOKEN)


@pytest.mark.parametrize(
    ("arguments", "spans"),
    [
        ({"parts": [{"text": f"key {TOKEN}, please"}]}, {(("parts", 0, "text"), 4, 44)}),
        ({TOKEN: {"x": 1}}, set()),
        ({"body": CODED}, set()),
    ],
    ids=["text", "key", "coding"],
)
def test_a_finding_has_spans_and_not_the_secret(arguments, spans):
    """Spans are for the redaction: none is in a key or a coding; words go into audit lines."""
    (finding,) = inspect(arguments)

    assert {(s.path, s.start, s.end) for s in finding.spans} == spans
    assert finding.code == "secret_found"
    assert finding.data.get("hidden", False) is not bool(spans)
    assert TOKEN[:8] not in f"{finding.detail}{dict(finding.data)}"


@pytest.mark.parametrize("end", ["\n-----END RSA PRIVATE KEY-----", ""])
def test_a_private_key_is_replaced_whole(end):
    """With the head alone replaced, the key would go out."""
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{drawn(40)}{end}"
    arguments = {"body": f"here: {key}"}
    clean = without_spans(arguments, inspect(arguments)[0].spans)

    assert drawn(40)[:6] not in str(clean)
    assert "here: " in clean["body"]


@given(
    st.recursive(
        st.text(max_size=30) | st.just(TOKEN) | st.just(f"x {TOKEN} y") | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_a_replaced_secret_is_gone_and_the_rest_stays(value):
    """For arguments of any shape, and any text: nothing raises."""
    arguments = {"v": value}
    found = inspect(arguments)
    clean = without_spans(arguments, found[0].spans if found else ())
    kinds = "|".join(sorted({s.kind for s in found[0].spans})) if found else "none"

    assert not any(TOKEN in text.text for text in argument_texts(clean))
    assert re.sub(rf"\[redacted (?:{kinds})\]", TOKEN, str(clean)) == str(arguments)
