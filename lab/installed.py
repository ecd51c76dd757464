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


def installed_megabytes() -> tuple[float | None, str | None]:
    """Return the megabytes that the environment takes, as ``du`` shows them, or why not."""
    with tempfile.TemporaryDirectory(prefix="guard-installed-") as name:
        environment = Path(name) / "environment"
        python = environment / "bin" / "python"
        try:
            _run(sys.executable, *PIP, "wheel", "--no-deps", "-w", name, ROOT)
            _run(sys.executable, "-m", "venv", environment)
            _run(python, *PIP, "install", next(Path(name).glob("*.whl")))
            kilobytes = int(_run("du", "-sk", environment).split()[0])
        except (OSError, subprocess.CalledProcessError) as error:
            return None, f"{type(error).__name__}: {error}"[:200]
    return round(kilobytes * KILOBYTE / 1e6, 1), None


def _run(*words: object) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603  (our own command)
    return done.stdout
