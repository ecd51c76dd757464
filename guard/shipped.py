"""Where the files that ship with the guard are: models and policies.

An installed wheel carries them inside the package (``guard/_shipped``); in a source checkout they
lie beside it.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def models_directory() -> Path:
    """Return the directory of the shipped models; it holds ``manifest.json``.

    Raises:
        FileNotFoundError: the installation carries no models.
    """
    return _directory("models")


def policies_directory() -> Path:
    """Return the directory of the shipped policies; it holds ``default.yaml``.

    Raises:
        FileNotFoundError: the installation carries no policies.
    """
    return _directory("policies")


def _directory(name: str) -> Path:
    package = Path(str(files("guard")))
    shipped = package / "_shipped" / name
    if shipped.is_dir():
        return shipped
    checkout = package.parent
    # Beside an installed package lie other people's packages; only a checkout has this file.
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    message = f"this installation carries no `{name}` directory, reinstall the package"
    raise FileNotFoundError(message)
