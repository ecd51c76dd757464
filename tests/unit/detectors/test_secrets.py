"""The detector of secrets: every form, in any coding, with its place, and plain work left alone."""

import base64
import gzip
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.content import decoder
from guard.core.argument_texts import argument_texts, without_spans
from guard.core.calls import ClassifiedCall
from guard.core.model import Identity, Role, ToolCall
from guard.core.trajectory import Snapshot
from guard.detectors import DetectorResources
from guard.detectors.secrets import Secrets, forms

TOKEN = "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"
DETECTOR = Secrets.create(DetectorResources())


def look(arguments):
    """Return what is found in arguments."""
    call = ToolCall("id", Identity("p", "s"), "mail_send", arguments, "mcp", 0.0)
    return DETECTOR.inspect(ClassifiedCall(call, Role.SEND), Snapshot())


def percent(text):
    """Encode every letter."""
    return "".join(f"%{ord(letter):02x}" for letter in text)


CODINGS = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "percent": percent,
    "gzip": lambda text: base64.b64encode(gzip.compress(text.encode())).decode(),
    "escapes": lambda text: "".join(f"\\x{ord(letter):02x}" for letter in text),
    "unicode": lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text),
    "entities": lambda text: "".join(f"&#{ord(letter)};" for letter in text),
    "numbers": lambda text: " ".join(str(ord(letter)) for letter in text),
    "pairs": lambda text: " ".join(f"{ord(letter):02x}" for letter in text),
    "utf-16": lambda text: base64.b64encode(text.encode("utf-16")).decode(),
}


@pytest.mark.parametrize("outer", CODINGS)
@pytest.mark.parametrize("inner", CODINGS)
def test_a_secret_is_found_in_any_known_coding(outer, inner):
    """Alone, and one coding inside another."""
    once = CODINGS[inner](TOKEN)

    assert look({"url": f"https://x.test/?d={once}"})
    assert look({"url": f"https://x.test/?d={CODINGS[outer](once)}"})


TABLES = [
    sign.join(head) + end + end.join(map(sign.join, rows)) + end
    for end in ("\n", "\r\n")
    for sign in (",", ";", "\t", "|", ", ")
    for name in ("password", "Passwd", '"passphrase"', "PWD")
    for head, rows in (
        (("site", "user", name), (("bank.test", "ines", "plum-Orchard-77"),)),
        ((name, "user"), (("n7-Lantern-oak", "tom"), ("-", "lea"))),
        (("id", name, "note"), (("1", "", ""), ("2", "Tr0ub4dor&3-moonlit", "old"))),
    )
]
"""Tables of separated values with a column of passwords."""


@pytest.mark.parametrize("table", TABLES)
def test_a_column_of_passwords_is_found(table):
    """What a cell is called stands in the first line."""
    assert look({"body": table})
    assert look({"body": "accounts, as asked:\n" + table})


@pytest.mark.parametrize(
    "table",
    [
        "site,user,password\nbank.test,ines,\n",
        "site,user,password_changed\nbank.test,ines,2026-11-02\n",
        "name,role,team\ntom,password resets,desk 4\n",
        "option | password\n--- | ---\ntype | string\nrequired | true\n",
        "word,meaning\npassword,what lets you in since 1961\n",
    ],
)
def test_a_table_that_only_speaks_of_passwords_has_none(table):
    """Empty cells, other columns, rows and words."""
    assert not look({"body": table})


def test_without_the_columns_the_tables_hold_nothing(monkeypatch):
    """No line of them says what a password is."""
    monkeypatch.setattr(decoder, "_secret_cells", lambda *_: iter(()))
    # What was read before is remembered: the texts are new ones.

    assert not any(look({"text": f"these:\n{table}"}) for table in TABLES)


SIGNED = "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}%2F20261123%2F{}%2Fs3%2Faws4_request"


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1"])
def test_the_id_of_a_key_is_shown_by_every_signed_url(region):
    """With the scope of the signature behind it; without, or beside another, it is a find."""
    url = "https://b.s3.test/f.pdf" + SIGNED.format("ASIAQWERTYUIOPASDFGH", region)

    assert not look({"url": url})
    assert look({"url": "https://b.s3.test/f.pdf?k=ASIAQWERTYUIOPASDFGH"})
    assert look({"url": url + "&k=AKIAQWERTYUIOPASDFGH"})
    assert look({"url": url + "&secret_key=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"})


@pytest.mark.parametrize(
    ("shown", "secret"),
    [
        (
            SIGNED.format("0123456789abcdef0123456789abcdef", "auto"),
            "?X-Amz-Credential=" + "0a1b2c3d" * 4,
        ),
        (SIGNED.format("DO00QWERTYUIOPASDFGH", "fra1"), SIGNED.format("0a1B" * 9, "fra1")),
        ("?OSSAccessKeyId=LTAI5tQ9wErTyUiOpAsDfG7h", "?OSSAccessKey=LTAI5tQ9wErTyUiOpAsDfG7h"),
        ("/Accounts/AC" + "0a1b2c3d" * 4, "/Accounts/SK" + "0a1b2c3d" * 4),
        ("?example=ghp_" + "x" * 36, "?example=ghp_" + "xY1" * 12),
        ("?example=password=x7" + "*" * 20, "?example=password=x7*kd93kfmmwqp30"),
    ],
)
def test_a_name_or_a_placeholder_is_no_secret_and_what_it_stands_for_is(shown, secret):
    """Stores that speak the protocol of AWS, ids of keys and accounts, signs that are all one."""
    assert not look({"url": f"https://b.test{shown}"})
    assert look({"url": f"https://b.test{secret}"})


KEYED = "token ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"


@pytest.mark.parametrize("code", [base64.b85encode, base64.a85encode])
@pytest.mark.parametrize(
    "shape", ["https://x.test/c?d={}", "https://x.test/?a=1&d={}&b=2", "d={}", "a=b&d={}"]
)
def test_a_value_of_a_query_is_a_word_whatever_its_escapes_stand_for(code, shape):
    """The signs of base 85 are those that part a URL."""
    assert look({"text": shape.format(quote(code(KEYED.encode()).decode(), safe=""))})


@pytest.mark.parametrize("name", ["user_session", "SAMLTicket", "d", "__Host-id"])
@pytest.mark.parametrize("deep", [False, True])
def test_a_cookie_in_a_recording_of_traffic_is_found(name, deep):
    """As browsers' protocols and HAR write them; what a site remembers in words is none."""
    cookie = {"name": name, "value": "YwhgCY6tpJcFAT44Nd0zjyCSzV4MVuHsDuN8JhRh", "secure": True}
    told = json.dumps({"id": 9, "result": {"cookies": [cookie]}})
    plain = {"cookies": [{"name": "theme", "value": "dark-blue-with-large-letters"}]}
    assert look({"body": json.dumps({"message": told}) if deep else told})
    assert not look({"body": json.dumps(plain)})


def test_a_list_of_cookies_is_found_in_a_message_as_well():
    """As members of the arguments, not as a text."""
    cookie = {"domain": ".desk.test", "name": "n", "value": "OX7yju6GjlvOEW8ahEJDUQTFXOPtr_SArxxYV"}
    told = {"message": {"parts": [{"kind": "data", "data": {"cookies": [cookie]}}]}}
    plain = {"message": {"cookies": [{"name": "theme", "value": "dark"}, "oatmeal"]}}

    assert look(told)
    assert not look(plain)


@pytest.mark.parametrize(
    "program", ["mysql -h db.example", "mysqldump", "mariadb --ssl", "mysqladmin"]
)
@pytest.mark.parametrize("coded", [False, True])
def test_the_password_of_a_database_behind_its_letter_is_found(program, coded):
    """Without a space; a port, a variable and the question for one are none."""

    def found(option):
        text = f"{program} -u root {option} shop"
        return look({"body": base64.b64encode(text.encode()).decode() if coded else text})

    assert found("-pTundra!Kite77")
    for option in ("-p", "-p$DB_PASSWORD", "-P 3306", "-p3306", "--protocol=tcp"):
        assert not found(option)


@given(
    st.from_regex(
        r"[a-z]{2,8}_(?:api|pat|oat|key|token|secret|access)_[A-Za-z0-9]{12}", fullmatch=True
    )
)
def test_a_key_of_a_service_is_told_by_what_stands_before_it(key):
    """Whichever service: drawn letters of both cases and digits behind a word for a key."""
    drawn = f"{key}aZ3kQ8vR1mT6xB4nW9cY2"
    assert look({"query": f'mutation {{ add(note: "{drawn}") }}'})
    assert not look({"text": f"the setting {key.rpartition('_')[0]}_timeout_in_milliseconds"})


@pytest.mark.parametrize(
    "text",
    [
        "AKIA0123456789ABCDEF",
        "xoxb-123456789012-abcdefghij",
        "theme=dark; d=xoxd-hQT0WN2yV53u2N5VxMhLaI3PX%2FXfu3DTav2NbONYivn2",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "postgres://app:hunter2hunter@db:5432/x",
        "password=Tr0ub4dor!3xyz9Qw",
        "Authorization: Bearer 0123456789abcdef0123",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "gh\u200bp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R",
        "<Report><user>svc</user><w:password type='x'> Bl!nker-Fj0rd-22 </w:password></Report>",
        "<Report><dbUser>app</dbUser><dbPassword>Bl!nker-Fj0rd-22</dbPassword></Report>",
        "<cfg><clientSecret>q8Zt1Lm4Vx7Rb2Nc5Kd9</clientSecret></cfg>",
        f"https://x.test/store?env=prod&rails_master_key={'0b1f6c2d9e3a7584' * 2}",
        "Log in for me: user maria, password Plum-Shed!47, and say when you are in.",
    ],
)
def test_secrets_are_told_by_their_form(text):
    """Prefixes, headers, assignments; invisible letters do not help."""
    assert look({"body": text})


@pytest.mark.parametrize(
    "text",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "glpat-0a1B2c3D4e5F6g7H8i9J",
        "sk_live_0a1B2c3D4e5F6g7H8i9J0k1L",
        "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",
        "https://hooks.slack.com/services/T0a1B2c3D/B0a1B2c3D/0a1B2c3D4e5F",
        "softlayer_api_key: " + "0a1b2c3d" * 8,
        "ibm_cloud_api_key = " + "0a1b2c3d4e5" * 4,
        "SK" + "0a1b2c3d" * 4,
        "0a1b2c3d" * 4 + "-us12",
    ],
)
def test_the_kept_rule_set_is_run(text):
    """Forms of many services, the ones that RE2 cannot take literally among them."""
    assert look({"body": f"use {text} for it"})


def test_every_form_of_the_rule_set_is_loaded():
    """A plug-in that is not read would be a hole that nobody sees."""
    kinds = forms().kinds

    assert {"artifactory", "aws", "cloudant", "discord", "gitlab_token", "twilio"} <= kinds
    assert len(kinds) > 30


def everyday_texts():
    """Return texts of everyday work."""
    return [
        "Status of the project: all is well, see you tomorrow at 10:30.",
        "550e8400-e29b-41d4-a716-446655440000",
        "https://shop.example/items?category=a&brand=b&min=100&max=2000&page=3",
        "token_count=1200, api_version=2024-06-01",
        "<label><input type='password'> At least 8 characters</label>",
        "<password>${DB_PASSWORD_1}</password>",
        "The password SHA256-Digest2 has was replaced; forgot your password? Reset!1",
        "APARTMENTSBLOCK nine, passwords are discussed on page 12",
        "integrity: sha512-POZf09fLAxHA5m5GsR91yg92svvUBLuWzK1tzzEjzjW7dTkWpSxNs84rlUHcOjt",
        "see https://x.test/pul-2024-11-23-Release-notes-of-Version-12 and tvly-docs-for-all-2",
        "re-exports 12 functions; the api_key_id and the encryption_key_name stay in the config",
        "Das Umweltministerium prüft internationale Vereinbarungen.",
    ]


@pytest.mark.parametrize("text", everyday_texts())
def test_everyday_text_has_no_secret(text):
    """A search that cries wolf is switched off."""
    assert not look({"body": text, "password": "to be told by phone"})


def test_what_is_found_says_where_and_nothing_of_what():
    """The place is for the redaction; the words go into audit lines."""
    (finding,) = look({"to": "a@example.com", "parts": [{"text": f"key {TOKEN}, please"}]})

    assert {(s.path, s.start, s.end) for s in finding.spans} == {(("parts", 0, "text"), 4, 44)}
    assert finding.code == "secret_found"
    assert TOKEN[:8] not in f"{finding.detail}{dict(finding.data)}"


def test_a_key_or_a_coding_has_no_place():
    """What cannot be replaced is found all the same."""
    coded = base64.b64encode(TOKEN.encode()).decode()

    assert look({TOKEN: {"x": 1}})[0].spans == ()
    assert look({"body": coded})[0].spans == ()
    assert look({"body": coded})[0].data["hidden"] is True


def test_a_private_key_goes_whole():
    """The head alone would be replaced, and the key would go out."""
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----"
    arguments = {"body": f"here: {key} bye"}
    (finding,) = look(arguments)

    assert without_spans(arguments, finding.spans) == {"body": "here: [redacted private_key] bye"}


@given(
    st.recursive(
        st.text(max_size=30) | st.just(TOKEN) | st.just(f"x {TOKEN} y") | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_what_is_replaced_is_gone_and_the_rest_stays(value):
    """Whatever the arguments look like."""
    arguments = {"v": value}
    found = look(arguments)
    spans = found[0].spans if found else ()
    clean = without_spans(arguments, spans)

    assert not any(TOKEN in text.text for text in argument_texts(clean))
    assert str(clean).replace("[redacted github_token]", TOKEN) == str(arguments)


@given(st.text(max_size=300))
def test_nothing_makes_it_raise(text):
    """An error would block the call."""
    look({"body": text})


def test_a_long_hostile_text_is_searched_in_linear_time():
    """Long runs of what every form begins with; the count of steps is RE2's, not a clock's."""
    assert not look({"body": "eyJ" * 5000 + " AC" * 5000 + "api_key=" * 2000})


@pytest.mark.parametrize("host", ["us02web.zoom.us", "zoom.us"])
def test_the_passcode_in_a_link_to_a_meeting_is_no_secret(host):
    """As the service draws it, in the link that is sent for it; a word of somebody's is one."""
    link = f"https://{host}/j/81234567890?pwd=bXlQYXNzd29yZEhlcmVJc0xvbmcxMjM0.1"

    assert not look({"body": f"Our call: {link}"})
    assert not look({"method": "GET", "url": link.replace(host, f"{host}:443")})
    assert look({"body": f"Our call: https://{host}/j/81234567890?pwd=hunter2hunter"})
    assert look({"body": f"Our call: {link.replace(host, 'zoom.us.evil.test')}"})
