"""The public API: every name is there, and importing it loads nothing else."""

import subprocess
import sys
from pathlib import Path

import guard

ROOT = Path(__file__).resolve().parents[2]


def test_every_public_name_is_there():
    """What `__all__` lists can be imported."""
    assert {name for name in guard.__all__ if not hasattr(guard, name)} == set()


def test_importing_the_package_loads_nothing_of_it():
    """The API is loaded when it is asked for, so the command line stays quick."""
    code = "import sys, guard; print([m for m in sys.modules if m.startswith('guard.in')])"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert ran.stdout.strip() == "[]"
