"""Signing in on a real console: client certificates over TLS."""

import ssl

import httpx
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.e2e.running_console import start_console
from tests.e2e.tls_upstream import issue

pytestmark = pytest.mark.e2e


def test_people_sign_in_with_a_certificate_and_only_with_it(tmp_path, own_server):
    """A session begun by certificate is good with it alone; a stranger's gets no connection."""
    ann, false = (
        issue(tmp_path / f"{name}.pem", "ann@corp.test", usage=ExtendedKeyUsageOID.CLIENT_AUTH)
        for name in ("ann", "stranger")
    )
    people = tmp_path / "people.toml"
    people.write_text(
        '[certificates]\nauthorities = "ann.pem"\n[certificates.roles]\n'
        '"ann@corp.test" = ["approver"]\n',
        "utf-8",
    )
    own = str(issue(tmp_path / "console.pem", "localhost"))
    options = ("--people", str(people), "--certificate", own)
    console = start_console(tmp_path, own_server.url, *options)
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
            signed_in = with_ann.post("/sign-in/certificate")
            assert signed_in.status_code == 303
            assert "secure" in signed_in.headers["set-cookie"].lower()
            cookies = dict(with_ann.cookies)
            assert with_ann.get("/api/decisions").status_code == 200
        with browser(None, cookies) as other:
            assert other.get("/api/decisions").status_code == 401, "the cookie alone is no key"
            assert other.post("/sign-in/certificate").status_code == 401
        with browser(false) as other, pytest.raises(httpx.TransportError):
            other.get("/sign-in")
    finally:
        console.child.stop()
