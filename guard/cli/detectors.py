"""The detectors a command judges with: the same as live traffic's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from guard.core.ports import Detector

Models = Annotated[
    Path | None, typer.Option("--models", help="Models directory; the shipped one if unset.")
]


def shipped_detectors(models: Path | None) -> Sequence[Detector]:
    """Return every detector, with the models of a directory or the shipped ones.

    Raises:
        GuardError: a model cannot be used.
    """
    # Here: loading the model runtime takes longer than most commands.
    from guard.adapters.onnx import load_models
    from guard.detectors import DetectorResources, create_detectors
    from guard.settings import models_directory

    return create_detectors(DetectorResources(load_models(models or models_directory())))
