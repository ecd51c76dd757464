"""The authority that opens TLS: made once, whole, and its user's alone."""

import concurrent.futures
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from guard.core.errors import GuardError
from guard.credentials.authority import (
    KEY_FILE,
    NEXT,
    PREVIOUS,
    ensure_authority,
    forget_previous,
    prepare_next,
    read_authority,
    trusted,
    use_next,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a directory with an authority in it."""
    directory = tmp_path_factory.mktemp("state") / "deep" / "ca"
    ensure_authority(directory)
    return directory


def test_the_certificate_may_sign_servers_and_nothing_more_is_said(made):
    """Strict clients look at basic constraints and key usage."""
    authority = ensure_authority(made)
    certificate = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)

    assert (constraints.critical, constraints.value.ca) == (True, True)
    assert (usage.critical, usage.value.key_cert_sign) == (True, True)
    assert not usage.value.digital_signature
    assert certificate.public_key().key_size >= 3072
    assert "egress guard" in authority.subject


def test_only_its_user_can_read_the_key(made):
    """The directory is closed and so is each file with a key in it."""
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    secrets = [p for p in made.iterdir() if b"PRIVATE KEY" in p.read_bytes() or p.suffix == ".p12"]

    assert len(secrets) >= 2
    for path in secrets:
        if path.name.endswith("-ca-cert.p12"):
            continue  # the certificate alone
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_starts_at_the_same_time_agree_on_one(tmp_path):
    """Whoever is first wins, and nobody sees half of it."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = [*pool.map(ensure_authority, [tmp_path / "ca"] * 3)]

    assert len({one.fingerprint for one in found}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["ca"]


@pytest.mark.parametrize("name", ["", KEY_FILE])
def test_a_key_that_others_could_read_is_not_used(tmp_path, name):
    """It may be known to whoever it should be kept from."""
    ensure_authority(tmp_path / "ca")
    (tmp_path / "ca" / name).chmod(0o755)

    with pytest.raises(GuardError, match="must be yours alone"):
        ensure_authority(tmp_path / "ca")


def test_the_authority_changes_in_three_steps(tmp_path):
    """Clients trust both before the next is used; of the one before only the certificate stays."""
    directory = tmp_path / "ca"
    first = ensure_authority(directory)
    with pytest.raises(GuardError, match="prepares one"):
        use_next(directory)
    following = prepare_next(directory)
    assert prepare_next(directory).fingerprint == following.fingerprint
    assert read_authority(directory).fingerprint == first.fingerprint
    assert trusted(directory).count("BEGIN CERTIFICATE") == 2

    used = use_next(directory)
    assert used.fingerprint == following.fingerprint == ensure_authority(directory).fingerprint
    assert trusted(directory).count("BEGIN CERTIFICATE") == 2
    key = x509.load_pem_x509_certificate(read_authority(directory).certificate.read_bytes())
    assert key.public_bytes(serialization.Encoding.PEM) in (directory / KEY_FILE).read_bytes()
    assert b"PRIVATE" not in (directory / PREVIOUS).read_bytes()
    assert not (directory / NEXT).exists()

    assert forget_previous(directory)
    assert not forget_previous(directory)
    assert trusted(directory).count("BEGIN CERTIFICATE") == 1


def test_a_change_that_ended_half_way_is_finished_by_another_try(tmp_path):
    """The key file moves first and in one step; the rest follows it."""
    directory = tmp_path / "ca"
    first = ensure_authority(directory)
    following = prepare_next(directory)
    (directory / PREVIOUS).write_bytes(first.certificate.read_bytes())
    (directory / NEXT / KEY_FILE).replace(directory / KEY_FILE)
    assert use_next(directory).fingerprint == following.fingerprint
    assert trusted(directory).count("BEGIN CERTIFICATE") == 2
