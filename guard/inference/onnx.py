"""Model artefacts: verified by digest, then scored in-process with onnxruntime.

A models directory holds ``manifest.json``, one ``.onnx`` and one card per model.  The bytes that
are hashed are the bytes that are handed to the runtime: the file is read once, so nobody can swap
it between check and use.
"""

from __future__ import annotations

import hashlib
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
import onnxruntime as ort
from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeInt,
    RootModel,
    ValidationError,
    model_validator,
)

from guard.core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MANIFEST: Final = "manifest.json"
CLASSES: Final = 2
"""Least number of classes of a classifier."""
# On Linux and macOS the environment switches telemetry off before the import (guard/__init__.py);
# on Windows this call does.
ort.disable_telemetry_events()

_TOLERANCE: Final = 1e-5
"""A sum of 200 float32 leaf values may leave [0, 1] by a rounding; more than this is an error."""
_REMEDY: Final = "restore it as shipped or added, or make it again and review the new manifest"


class ManifestEntry(BaseModel):
    """Manifest entry of one model; file names are plain names in the same directory."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    file: str
    sha256: str
    card: str
    card_sha256: str
    features: list[str]


class _Manifest(RootModel[dict[str, ManifestEntry]]):
    pass


class _ScoreHistogram(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    le: list[float]
    counts: list[NonNegativeInt]

    @model_validator(mode="after")
    def _of_one_size(self) -> _ScoreHistogram:
        if len(self.le) != len(self.counts) or not sum(self.counts):
            raise ValueError("a histogram has one count per bound, and not only zeros")
        return self


class _Card(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    features: list[str]
    sha256: str | None = None
    """Digest of the model that the card describes; cards written by older versions lack it."""
    score_histogram: _ScoreHistogram | None = None
    """Scores of the training data; likewise."""
    thresholds: dict[str, float] = {}

    def expected_scores(self) -> dict[float, float]:
        found = self.score_histogram
        if found is None:
            return {}
        total = sum(found.counts)
        below = [count / total for count in accumulate(found.counts)]
        return dict(zip(found.le, below, strict=True))


class OnnxModel:
    """A verified classifier, as :class:`guard.core.ports.ModelRunner`.

    Not for construction by hand: :func:`load_models` verifies first.
    """

    expected_scores: Mapping[float, float] = MappingProxyType({})
    """Share of the training data's scores up to each bound, empty where the card has none."""
    thresholds: Mapping[str, float] = MappingProxyType({})
    """Least probability of a class with which it is named, by class; likewise."""

    def __init__(self, name: str, content: bytes, features: tuple[str, ...]) -> None:
        self.name, self.features = name, features
        self.digest = hashlib.sha256(content).hexdigest()
        """Digest of the bytes that were loaded, in hex."""
        try:
            self._session = onnx_session(content)
            source = self._session.get_inputs()[0]
            target = next(o for o in self._session.get_outputs() if o.name == "probabilities")
        except Exception as error:
            raise ModelError(
                f"model `{name}` cannot be loaded ({type(error).__name__}), {_REMEDY}"
            ) from error
        if list(source.shape)[1:] != [len(features)]:
            raise ModelError(f"model `{name}` does not take {len(features)} features, {_REMEDY}")
        self._input = source.name
        self._outputs = [target.name]

    def score(self, row: Sequence[float]) -> float:
        """Return the probability of the positive class, in [0, 1].

        Raises:
            ModelError: as :meth:`probabilities`.
        """
        return self.probabilities(row)[1]

    def probabilities(self, row: Sequence[float]) -> tuple[float, ...]:
        """Return the probability of each class, in [0, 1].

        Raises:
            ModelError: the row does not fit, or the model answered something else.
        """
        if len(row) != len(self.features):
            raise ModelError(
                f"model `{self.name}` takes {len(self.features)} features, not {len(row)}"
            )
        try:
            answer = self._session.run(
                self._outputs, {self._input: np.asarray([row], dtype=np.float32)}
            )
            found = tuple(map(float, answer[0][0]))
        except Exception as error:
            raise ModelError(
                f"model `{self.name}` failed on a row ({type(error).__name__})"
            ) from error
        if len(found) < CLASSES or not all(-_TOLERANCE <= one <= 1 + _TOLERANCE for one in found):
            raise ModelError(f"model `{self.name}` answered no probability")
        return tuple(min(max(one, 0.0), 1.0) for one in found)


def load_models(directory: Path) -> dict[str, OnnxModel]:
    """Return every model of a models directory, verified against its manifest.

    Raises:
        ModelError: the manifest, a model or a card is missing, altered or does not fit.
    """
    try:
        manifest = _Manifest.model_validate_json(_read(directory, MANIFEST))
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise ModelError(
            f"`{directory / MANIFEST}` is not a model manifest (at `{place}`), {_REMEDY}"
        ) from error
    return {name: _load(directory, name, entry) for name, entry in manifest.root.items()}


def _load(directory: Path, name: str, entry: ManifestEntry) -> OnnxModel:
    content = verified(directory, entry.file, entry.sha256)
    try:
        card = _Card.model_validate_json(verified(directory, entry.card, entry.card_sha256))
    except ValidationError as error:
        raise ModelError(
            f"the card of model `{name}` does not fit the format, {_REMEDY}"
        ) from error
    if card.name != name or card.features != entry.features:
        raise ModelError(f"the card and the manifest disagree about model `{name}`, {_REMEDY}")
    if card.sha256 not in {None, entry.sha256}:
        raise ModelError(f"the card of model `{name}` describes another model's bytes, {_REMEDY}")
    model = OnnxModel(name, content, tuple(entry.features))
    model.expected_scores, model.thresholds = card.expected_scores(), card.thresholds
    return model


def verified(directory: Path, file: str, expected: str) -> bytes:
    """Return the bytes of a file that has the expected digest.

    Raises:
        ModelError: it cannot be read, or is another one.
    """
    content = _read(directory, file)
    actual = hashlib.sha256(content).hexdigest()
    if actual != expected:
        raise ModelError(
            f"`{directory / file}` is not the file the manifest names: sha256 {actual[:12]}… "
            f"instead of {expected[:12]}…, {_REMEDY}"
        )
    return content


def _read(directory: Path, file: str) -> bytes:
    if file in {"", ".", ".."} or Path(file).name != file or "\\" in file or "\0" in file:
        raise ModelError(
            f"the manifest names `{file}`, write a plain file name without a directory"
        )
    try:
        return (directory / file).read_bytes()
    except OSError as error:
        raise ModelError(
            f"`{directory / file}` cannot be read ({type(error).__name__}), {_REMEDY}"
        ) from error


def onnx_session(content: bytes) -> ort.InferenceSession:
    """Return a session of one thread around a model."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # Errors reach the caller as exceptions; the runtime's own log would only repeat them.
    options.log_severity_level = 4
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
