"""Size of an installation: an empty environment after ``pip install`` of the wheel."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PIP: Final = ("-m", "pip", "--disable-pip-version-check", "-q")
KILOBYTE: Final = 1024


def installed_megabytes() -> float:
    """Return the megabytes that the environment takes, as ``du`` shows them.

    Raises:
        subprocess.CalledProcessError: the wheel cannot be built or installed.
    """
    with tempfile.TemporaryDirectory(prefix="guard-installed-") as name:
        environment = Path(name) / "environment"
        python = environment / "bin" / "python"
        _run(sys.executable, *PIP, "wheel", "--no-deps", "-w", name, ROOT)
        _run(sys.executable, "-m", "venv", environment)
        _run(python, *PIP, "install", next(Path(name).glob("*.whl")))
        return int(_run("du", "-sk", environment).split()[0]) * KILOBYTE / 1e6


def _run(*words: object) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603  (our own command)
    return done.stdout


if __name__ == "__main__":
    sys.stdout.write(f"{installed_megabytes():.1f}\n")
