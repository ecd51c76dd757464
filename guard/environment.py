"""The environment that child processes inherit, and the way to people: standard error.

Not among the settings: a worker is started before those can be read.
"""

from __future__ import annotations

import os
import sys


def inherited() -> dict[str, str]:
    """Return this process's environment, without the guard's own settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GUARD_")}


def say(text: str) -> None:
    """Tell operators, who read standard error."""
    print(f"guard: {text}", file=sys.stderr, flush=True)  # noqa: T201  (see above)
