"""The worker process, as the supervisor starts it.

``python -O -m guard.worker PARENT DIRECTORY REDIS_URL``.  Settings come as one JSON line on
standard input.  Not part of the command line: it imports no more than serving needs.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

from guard.adapters.child_process import die_with_parent
from guard.core.errors import GuardError, PolicyError
from guard.settings import Settings
from guard.wiring import serve

EXIT_FAILED = 1
EXIT_INVALID = 3


def main() -> int:
    """Serve until told to stop; return the exit code."""
    parent, directory, redis_url = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    settings = Settings.model_validate_json(sys.stdin.readline())
    # What is imported lives as long as the process: keep the collector from walking it again.
    gc.freeze()
    try:
        die_with_parent(parent)
        asyncio.run(serve(settings, redis_url, directory))
    except PolicyError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_INVALID
    except (GuardError, OSError) as error:
        sys.stderr.write(f"guard run: {error}\n")
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
