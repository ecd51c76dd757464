"""Signing in on a real console: panva's oidc-provider, client certificates over TLS."""

import json
import re
import shutil
import ssl
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from guard.processes.loopback import Rig
from tests.e2e.running_console import start_console
from tests.e2e.tls_upstream import issue

pytestmark = pytest.mark.e2e
IDENTITY = Path(__file__).parents[1] / "identity"
GROUPS = {"ann": ["soc"], "bea": ["platform"], "eve": ["marketing"]}
PEOPLE = """
[oidc]
issuer = "{issuer}"
client_id = "guard"
client_secret = "client.secret"
scopes = ["openid", "email", "groups"]
[oidc.roles]
soc = ["approver"]
platform = ["admin"]
"""


@pytest.fixture
def issuer():
    """A running OpenID Provider; its URL."""
    node = shutil.which("node")
    if node is None or not (IDENTITY / "node_modules" / "oidc-provider").is_dir():
        pytest.skip("npm's oidc-provider is not installed here: make console-identity")
    with Rig(environment={"GROUPS": json.dumps(GROUPS), "PATH": str(Path(node).parent)}) as rig:
        child = rig.start("issuer", node, str(IDENTITY / "issuer.mjs"), read=True)
        yield child.process.stdout.readline().decode().strip()


def _sign_in(browser, url, login):
    """Click through the provider's pages as a person does; return the console's last answer."""
    answer = browser.get(urljoin(url, "/sign-in/oidc"))
    for _ in range(20):
        if answer.is_redirect:
            answer = browser.get(urljoin(str(answer.url), answer.headers["location"]))
        elif str(answer.url).startswith(url):
            return answer
        else:
            [action] = re.findall(r'action="([^"]+)"', answer.text)[:1]
            fields = dict(re.findall(r'name="(\w+)" value="(\w+)"', answer.text))
            form = {**fields, "login": login, "password": "anything"}
            answer = browser.post(urljoin(str(answer.url), action), data=form)
    return answer


def test_people_sign_in_with_a_real_identity_provider(tmp_path, own_server, issuer):
    """Each gets the roles of the groups; who has none is told so; it is all on record."""
    people = tmp_path / "people.toml"
    people.write_text(PEOPLE.format(issuer=issuer), "utf-8")
    (tmp_path / "client.secret").write_text("client secret of the tests, long enough", "utf-8")
    console = start_console(tmp_path, own_server.url, "--people", str(people))
    try:
        for login, role in (("ann", "approver"), ("bea", "admin"), ("eve", None)):
            with httpx.Client(timeout=60) as browser:
                answer = _sign_in(browser, console.url, login)
                if role is None:
                    assert answer.status_code == 401
                    assert "none of your groups" in answer.text
                    continue
                assert answer.status_code == 200, answer.text
                assert f"{login}@corp.test" in answer.text
                accept = browser.post(
                    f"{console.url}/tools/approve",
                    headers={"sec-fetch-site": "same-origin", "origin": console.url},
                )
                # The admin's lacks the token of a page; the approver's lacks the role.
                words = {"approver": "not for your role", "admin": "load it anew"}
                assert words[role] in accept.text
        with httpx.Client(timeout=60) as browser:
            forged = browser.get(f"{console.url}/sign-in/oidc/callback?code=x&state=y")
            assert forged.status_code == 401
    finally:
        console.child.stop()
    lines = [json.loads(one) for one in (tmp_path / "audit.jsonl").read_text().splitlines()]
    said = [(one["outcome"], one.get("by")) for one in lines if "sign_in" in one["event"]]
    assert said == [
        ("signed in", "ann@corp.test"),
        ("signed in", "bea@corp.test"),
        ("refused", None),
        ("refused", None),
    ]
    assert {one.get("realm") for one in lines if one.get("outcome") == "signed in"} == {issuer}


def test_people_sign_in_with_a_certificate_and_only_with_it(tmp_path, own_server):
    """A session begun by certificate is good with it alone; other certificates get no further."""
    own = {"usage": ExtendedKeyUsageOID.CLIENT_AUTH}
    ann, eve, false = (
        issue(tmp_path / f"{name}.pem", f"{name[:3]}@corp.test", **own)
        for name in ("ann", "eve", "ann-of-strangers")
    )
    known = [(tmp_path / f"{name}.pem").read_text("ascii") for name in ("ann", "eve")]
    (tmp_path / "people-ca.pem").write_text("".join(known), "ascii")
    people = tmp_path / "people.toml"
    people.write_text(
        '[certificates]\nauthorities = "people-ca.pem"\n[certificates.roles]\n'
        '"ann@corp.test" = ["approver"]\n',
        "utf-8",
    )
    console = start_console(
        tmp_path,
        own_server.url,
        "--people",
        str(people),
        "--certificate",
        str(issue(tmp_path / "console.pem", "localhost")),
    )
    url = console.url.replace("127.0.0.1", "localhost")
    headers = {"origin": url, "sec-fetch-site": "same-origin"}

    def browser(pair=None, cookies=None):
        context = ssl.create_default_context(cafile=str(tmp_path / "console.pem"))
        if pair is not None:
            context.load_cert_chain(pair)
        return httpx.Client(
            verify=context, base_url=url, headers=headers, cookies=cookies, timeout=60
        )

    try:
        with browser(ann) as with_ann:
            assert "Sign in as ann@corp.test" in with_ann.get("/sign-in").text
            signed_in = with_ann.post("/sign-in/certificate")
            assert signed_in.status_code == 303
            assert "secure" in signed_in.headers["set-cookie"].lower()
            cookies = dict(with_ann.cookies)
            assert with_ann.get("/api/decisions").status_code == 200
        for pair in (None, eve):
            with browser(pair, cookies) as other:
                assert other.get("/api/decisions").status_code == 401, "the cookie alone is no key"
                assert other.post("/sign-in/certificate").status_code == 401
        with browser(false) as other, pytest.raises(httpx.TransportError):
            other.get("/sign-in")
    finally:
        console.child.stop()
