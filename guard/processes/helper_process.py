"""Processes that work for a supervisor beside its workers: the console and the detector."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from guard.processes.child_process import die_with_parent
from guard.settings import EMBEDDED, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

NICE: Final = 15


def serve_for_supervisor(
    name: str,
    serve: Callable[[Settings, str, Path | None, Path], Coroutine[Any, Any, None]],
) -> int:
    """Serve with the arguments and settings of a supervisor; return the exit code.

    Args:
        name: of the process, for errors.
        serve: takes the settings, the URL of Redis, the label key and the run's directory.
    """
    parent, redis, directory = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    settings = Settings.model_validate_json(sys.stdin.readline())
    key = settings.label_key
    if key is None and settings.redis == EMBEDDED and (directory / "label.key").exists():
        key = directory / "label.key"
    try:
        die_with_parent(parent)
        # Calls come first where processors are few.
        os.nice(NICE)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(settings, redis, key, directory))
    except (GuardError, OSError) as error:
        sys.stderr.write(f"guard {name}: {error}\n")
        return 1
    return 0
