"""The certificate authority with which forward listeners open TLS: made once, kept safe.

Whoever has its key can read and forge the traffic of every client that trusts it.  It lives in a
directory that only the guard's user can enter, is never sent anywhere, and is used only if that is
still so at start.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import certifi
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from mitmproxy.certs import CertStore

from guard.core.errors import GuardError
from guard.credentials.certificates import read_authorities
from guard.processes.private_directories import make_private

if TYPE_CHECKING:
    from datetime import datetime

BASENAME: Final = "mitmproxy"
"""Base name of mitmproxy's files; the certificate itself says what it is."""
KEY_BITS: Final = 3072
KEY_FILE: Final = f"{BASENAME}-ca.pem"
CERTIFICATE_FILE: Final = f"{BASENAME}-ca-cert.pem"
NEXT: Final = "next"
"""Directory in the authority's own of the one that will follow it."""
PREVIOUS: Final = "previous-ca-cert.pem"
_SECRETS: Final = (KEY_FILE, f"{BASENAME}-ca.p12")
_CREATION: Final = threading.Lock()
"""mitmproxy narrows the umask while it writes the key.  The umask belongs to the whole process, so
two threads at it could leave the key readable, and the process without any umask."""


@dataclass(frozen=True, slots=True)
class Authority:
    """The public half."""

    certificate: Path
    """PEM file for clients to trust."""
    subject: str
    fingerprint: str
    """sha256, hex."""
    expires: datetime


def ensure_authority(directory: Path) -> Authority:
    """Return the authority of a directory, made now where there is none.

    Raises:
        GuardError: it cannot be made or read, or others could have read its key.
    """
    try:
        if not (directory / KEY_FILE).exists():
            _create(directory)
        return read_authority(directory)
    except OSError as error:
        raise GuardError(
            f"the authority in `{directory}` cannot be made: {error.strerror}"
        ) from error


def read_authority(directory: Path) -> Authority:
    """Return the authority of a directory.

    Raises:
        GuardError: there is none, it cannot be read, or others could have read its key.
    """
    _check_private(directory)
    path = directory / CERTIFICATE_FILE
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise GuardError(
            f"`{path}` is no certificate; remove `{directory}` and let the guard make it anew"
        ) from error
    return Authority(
        path,
        certificate.subject.rfc4514_string(),
        certificate.fingerprint(hashes.SHA256()).hex(),
        certificate.not_valid_after_utc,
    )


def prepare_next(directory: Path) -> Authority:
    """Return the authority that will follow the one of a directory, made now where there is none.

    Raises:
        GuardError: there is no authority to follow, or the next cannot be made.
    """
    read_authority(directory)
    return ensure_authority(directory / NEXT)


def use_next(directory: Path) -> Authority:
    """Put the next authority in the place of the one of a directory, and return it.

    What was the one before is kept as a certificate for clients to trust, without its key.  Ended
    half way, it can be called again.

    Raises:
        GuardError: none was prepared, or a file cannot be moved.
    """
    fresh = directory / NEXT
    if not fresh.is_dir():
        raise GuardError(f"no next authority in `{directory}`; `guard ca rotate` prepares one")
    try:
        if (fresh / KEY_FILE).exists():
            _check_private(fresh)
            before = (directory / CERTIFICATE_FILE).read_bytes()
            (directory / PREVIOUS).write_bytes(before)
            # What signs and what it signs with are one file, so they change in one step.
            (fresh / KEY_FILE).replace(directory / KEY_FILE)
        for path in sorted(fresh.iterdir()):
            path.replace(directory / path.name)
        fresh.rmdir()
    except OSError as error:
        raise GuardError(
            f"the next authority in `{directory}` cannot be used: {error.strerror}"
        ) from error
    return read_authority(directory)


def forget_previous(directory: Path) -> bool:
    """Take the certificate of the authority before away; return whether there was one."""
    found = (directory / PREVIOUS).exists()
    (directory / PREVIOUS).unlink(missing_ok=True)
    return found


def trusted(directory: Path) -> str:
    """Return the certificates (PEM) that clients have to trust: of now, next and before.

    Raises:
        GuardError: there is no authority.
    """
    files = [read_authority(directory).certificate]
    files += [directory / NEXT / CERTIFICATE_FILE, directory / PREVIOUS]
    return "".join(path.read_text(encoding="ascii") for path in files if path.exists())


def joined_trust(extra: Path, directory: Path) -> Path:
    """Return a PEM file, written into the directory, of the public authorities and more.

    Raises:
        GuardError: the extra file has no certificate.
    """
    read_authorities(extra, "upstream_ca")
    path = directory / "upstream-trust.pem"
    path.write_bytes(Path(certifi.where()).read_bytes() + b"\n" + extra.read_bytes())
    return path


def _create(directory: Path) -> None:
    """Make the files beside the directory and move them in whole, so that two starts agree."""
    make_private(directory.parent)
    fresh = tempfile.mkdtemp(prefix=".guard-ca-", dir=directory.parent)  # mode 0700
    try:
        name = f"egress guard {secrets.token_hex(4)}"
        made = directory.parent / fresh
        with _CREATION:
            CertStore.create_store(made, BASENAME, KEY_BITS, organization="egress guard", cn=name)
        for secret in _SECRETS:
            (made / secret).chmod(0o600)
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
        os.rename(fresh, directory)  # noqa: PTH104  (fails where another start was first)
    except OSError:
        if not (directory / KEY_FILE).exists():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _check_private(directory: Path) -> None:
    for path, allowed in ((directory, 0o700), *((directory / name, 0o600) for name in _SECRETS)):
        try:
            found = path.lstat()
        except OSError as error:
            raise GuardError(
                f"no authority in `{directory}`; `guard run --forward` makes one"
            ) from error
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & ~allowed:
            raise GuardError(
                f"`{path}` must be yours alone (mode {allowed:o}); others may have had the key"
            )
