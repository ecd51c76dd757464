"""``guard ca``: what it prints can be run, and adds trust without taking any away."""

import pytest
from typer.testing import CliRunner

from guard import cli


@pytest.fixture
def run(tmp_path):
    """Run ``guard ca`` on an authority of its own."""

    def invoke(*words):
        return CliRunner().invoke(cli.app, ["ca", *words], env={"GUARD_CA": str(tmp_path / "ca")})

    return invoke


def test_show_names_the_certificate_and_its_fingerprint(run, tmp_path):
    """What an operator compares before trusting it."""
    result = run("show")

    assert result.exit_code == 0
    assert str(tmp_path / "ca" / "mitmproxy-ca-cert.pem") in result.output
    assert "sha256" in result.output


def test_show_pem_prints_the_certificate_and_no_key(run):
    """It is meant to be redirected to where agents can read it."""
    result = run("show", "--pem")

    assert result.output.startswith("-----BEGIN CERTIFICATE-----")
    assert "PRIVATE" not in result.output


def test_the_hints_name_the_proxy_and_every_way_to_trust(run, tmp_path):
    """They are there to be run."""
    result = run("install-hints", "--proxy", "10.0.0.9:8080", "--to", str(tmp_path))

    assert "HTTPS_PROXY=http://10.0.0.9:8080" in result.output
    for word in ("NODE_EXTRA_CA_CERTS", "NODE_USE_ENV_PROXY", "SSL_CERT_FILE", "keytool", "uv:"):
        assert word in result.output
    # A variable that replaces gets the joined file, one that adds gets the certificate alone.
    assert f"SSL_CERT_FILE={tmp_path}/egress-guard-joined.pem" in result.output
    assert f"NODE_EXTRA_CA_CERTS={tmp_path}/egress-guard-ca.pem" in result.output


def test_an_authority_that_cannot_be_used_is_said(run, tmp_path):
    """Exit code 1, with the reason."""
    run("show")
    (tmp_path / "ca").chmod(0o755)
    result = run("show")

    assert result.exit_code == 1
    assert "must be yours alone" in result.output
