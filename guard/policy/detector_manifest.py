"""The manifest of added text classifiers: names, pins and settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from guard.core.errors import ModelError
from guard.detectors import discover_detectors
from guard.settings import detectors_directory

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST: Final = "manifest.json"
NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class ClassifierEntry(BaseModel):
    """The entry of one classifier in the manifest."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    files: dict[Literal["model.onnx", "tokenizer.json"], str]
    """sha256 of each file, in hex."""
    label: Annotated[int, Field(ge=0)] = 1
    """Index of the output that means `instructions`."""
    output: Literal["softmax", "sigmoid", "probability"] = "softmax"
    """Function that turns outputs into probabilities; `probability`: the model applies it."""
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Probability from which a text is a finding."""
    max_length: Annotated[int, Field(ge=16, le=8192)] = 512
    """Tokens of a window, special tokens included."""
    stride: Annotated[int, Field(ge=0, le=8000)] = 64
    """Tokens that two windows share."""
    max_windows: Annotated[int, Field(ge=1, le=4096)] = 64
    """Windows of one result; a longer result is withheld."""


class _Manifest(RootModel[dict[str, ClassifierEntry]]):
    pass


def read_manifest(directory: Path) -> dict[str, ClassifierEntry]:
    """Return the entries of a directory by name; empty if it has no manifest.

    Raises:
        ModelError: the manifest cannot be read.
    """
    path = directory / MANIFEST
    try:
        found = _Manifest.model_validate_json(path.read_bytes()).root
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        raise ModelError(
            f"`{path}` is not a manifest of detectors ({type(error).__name__})"
        ) from error
    if wrong := next((name for name in found if not NAME.fullmatch(name)), None):
        raise ModelError(f"`{path}` has an invalid detector name `{wrong[:64]}`")
    return found


def result_detectors() -> frozenset[str]:
    """Return the names that a ``result`` rule may use: built-in detectors and added ones.

    Raises:
        GuardError: a detector or the manifest cannot be read.
    """
    own = (found.name for found in discover_detectors() if hasattr(found, "inspect_result"))
    return frozenset((*own, *read_manifest(detectors_directory())))
