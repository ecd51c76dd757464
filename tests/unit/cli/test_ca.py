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


def test_an_authority_that_cannot_be_used_is_said(run, tmp_path):
    """Exit code 1, with the reason."""
    run("show")
    (tmp_path / "ca").chmod(0o755)
    result = run("show")

    assert result.exit_code == 1
    assert "must be yours alone" in result.output
