"""``python -m guard``, and the command ``guard``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["hook"] and "--help" not in sys.argv:
        from guard.pep.hook.client import main as hook

        sys.exit(hook(sys.argv[2:]))
    # Only now: a hook has to be quick.
    from guard.cli import app

    app(prog_name="guard")


if __name__ == "__main__":
    main()
