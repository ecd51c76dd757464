"""Certificates of authorities, from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509

from guard.core.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def read_authorities(path: Path, needed_by: str) -> list[x509.Certificate]:
    """Return the certificates of a PEM file.

    Args:
        path: the file.
        needed_by: setting that names it, for the error.

    Raises:
        InputError: it cannot be read, or has no certificate.
    """
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"`{path}` of `{needed_by}` cannot be read: {reason}") from error
    except ValueError as error:
        raise InputError(
            f"`{path}` has no certificate in PEM form; `{needed_by}` needs at least one"
        ) from error
