"""The environment that child processes inherit.

Not among the settings: a worker is started before those can be read.
"""

from __future__ import annotations

import os


def inherited() -> dict[str, str]:
    """Return this process's environment, without the guard's own settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GUARD_")}
