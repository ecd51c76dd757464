"""``python -m guard``, and the command ``guard``."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guard.processes.early_worker import EarlyWorker


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["hook"] and "--help" not in sys.argv:
        from guard.pep.hook.client import main as hook

        sys.exit(hook(sys.argv[2:]))
    early = _early_worker()
    # Only now: this takes as long as a third of the imports of a worker.
    from guard.cli import app

    try:
        app(prog_name="guard", obj=early)
    finally:
        if early is not None:
            early.end()
            shutil.rmtree(early.place.parent, ignore_errors=True)


def _early_worker() -> EarlyWorker | None:
    """Return the worker of a command that will have one."""
    command, *options = *sys.argv[1:], ""
    if command not in {"run", "decide"} or "--help" in options:
        return None
    from guard.processes.early_worker import EarlyWorker

    return EarlyWorker(Path(tempfile.mkdtemp(prefix="guard-run-")) / "worker-0")


if __name__ == "__main__":
    main()
