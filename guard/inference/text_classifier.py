"""Text classifiers that an operator adds: an ONNX model and its `tokenizer.json`.

A directory holds ``manifest.json`` and one folder per classifier.  The manifest pins the sha256 of
each file: the bytes that are hashed are the bytes that the runtime gets.  Needs the extra
``detectors``; a policy that names no classifier needs neither the extra nor the directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from pydantic import ValidationError

from guard.core.errors import InputError, ModelError
from guard.core.json_values import strings_in_order
from guard.core.model import Finding, Json
from guard.core.policy import INJECTION, TOO_LARGE
from guard.inference.onnx import onnx_session, verified
from guard.policy.detector_manifest import (
    MANIFEST,
    NAME,
    ClassifierEntry,
    read_manifest,
)
from guard.settings import detectors_directory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guard.core.calls import ClassifiedCall
    from guard.core.trajectory import Snapshot

MODEL: Final = "model.onnx"
TOKENIZER: Final = "tokenizer.json"
LIMIT: Final = 256 * 1024
"""Maximum number of characters of a result that is classified."""
_INTEGERS: Final = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_INPUTS: Final = {
    "input_ids": "ids",
    "attention_mask": "attention_mask",
    "token_type_ids": "type_ids",
}
"""Attribute of a tokenizer's encoding for each input of a model."""
_PROBE: Final = "The weather is fine."


class TextClassifier:
    """A detector around one ONNX text classifier.

    Args:
        name: the detector's name in policies.
        entry: its line in the manifest.
        folder: its files.
    """

    reads_calls: ClassVar[bool] = False

    def __init__(self, name: str, entry: ClassifierEntry, folder: Path) -> None:
        self.name = name
        self.entry = entry
        self._folder = folder
        self._parts: tuple[Any, Any] | None = None

    def prepare(self) -> None:
        """Verify the files, load them and classify one sentence.

        Raises:
            ModelError: a file is missing, altered or unusable.
        """
        if self._parts is None:
            self._parts = self._load()
            try:
                self.score(_PROBE)
            except ModelError:
                self._parts = None
                raise

    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:
        """Return no finding: the classifier reads results."""
        return ()

    def inspect_result(self, content: Json) -> Finding | None:
        """Return a finding if the texts of a result give instructions, or are too long.

        Raises:
            ModelError: the classifier cannot be used or failed.
        """
        text = "\n".join(strings_in_order(content))
        score = self.score(text) if len(text) <= LIMIT else None
        if score is None:
            return Finding(self.name, TOO_LARGE, None, "the result is too long to classify")
        if score < self.entry.threshold:
            return None
        detail = f"the text gives a model instructions ({self.name}: {score:.2f})"
        return Finding(self.name, INJECTION, score, detail)

    def probabilities(self, texts: Sequence[str]) -> list[float]:
        """Return the score of each text, 1 for one that is too long.

        Raises:
            ModelError: the classifier cannot be used or failed.
        """
        scores = map(self.score, texts)
        return [1.0 if score is None else score for score in scores]

    def score(self, text: str) -> float | None:
        """Return the highest probability over the windows of a text; None: too many windows.

        Raises:
            ModelError: the classifier cannot be used or failed.
        """
        self.prepare()
        tokenizer, session = self._parts or self._load()
        try:
            first = tokenizer.encode(text)
            windows = [first, *first.overflowing]
            if len(windows) > self.entry.max_windows:
                return None
            return max(self._probability(session, window) for window in windows)
        except ModelError:
            raise
        except Exception as error:
            raise self._error(f"failed on a text ({type(error).__name__})") from error

    def _probability(self, session: Any, window: Any) -> float:
        values = {
            one.name: np.array([getattr(window, _INPUTS[one.name])], dtype=_INTEGERS[one.type])
            for one in session.get_inputs()
        }
        outputs = np.asarray(session.run(None, values)[0], dtype=float)
        if outputs.ndim != 2 or outputs.shape[0] != 1 or outputs.shape[1] <= self.entry.label:  # noqa: PLR2004  (rows of labels)
            raise self._error(f"returned shape {outputs.shape}, not (1, labels)")
        if not np.isfinite(outputs).all():
            raise self._error("returned a value that is not finite")
        row = outputs[0]
        if self.entry.output == "softmax":
            row = np.exp(row - row.max())
            row /= row.sum()
        elif self.entry.output == "sigmoid":
            row = 1 / (1 + np.exp(-np.clip(row, -500, 500)))
        found = float(row[self.entry.label])
        if not 0 <= found <= 1:
            raise self._error("returned a value outside 0 and 1; set `--output softmax`")
        return found

    def _load(self) -> tuple[Any, Any]:
        content = {
            file: verified(self._folder, file, self.entry.files.get(file, ""))
            for file in (MODEL, TOKENIZER)
        }
        try:
            tokenizer = import_module("tokenizers").Tokenizer.from_buffer(content[TOKENIZER])
            tokenizer.no_padding()
            tokenizer.enable_truncation(self.entry.max_length, stride=self.entry.stride)
        except ImportError as error:
            fix = "install it with `pip install 'agent-egress-guard[detectors]'`"
            raise self._error(f"needs the extra `detectors`; {fix}") from error
        except BaseException as error:  # the library's panics are not exceptions
            raise self._error(f"has an unusable `{TOKENIZER}` ({type(error).__name__})") from error
        try:
            session = onnx_session(content[MODEL])
        except Exception as error:
            raise self._error(f"has an unusable `{MODEL}` ({type(error).__name__})") from error
        for one in session.get_inputs():
            if one.name not in _INPUTS or one.type not in _INTEGERS:
                raise self._error(f"takes the input `{one.name}`, not only {', '.join(_INPUTS)}")
        return tokenizer, session

    def _error(self, problem: str) -> ModelError:
        return ModelError(f"detector `{self.name}` {problem}")


def load_classifiers() -> tuple[TextClassifier, ...]:
    """Return the added classifiers; their files are read when a policy needs them.

    Raises:
        ModelError: the manifest cannot be read.
    """
    directory = detectors_directory()
    entries = read_manifest(directory)
    return tuple(TextClassifier(name, entry, directory / name) for name, entry in entries.items())


def add_classifier(
    directory: Path, name: str, source: Path, options: dict[str, Any]
) -> TextClassifier:
    """Copy a classifier into a directory, pin its files and try it.

    Args:
        directory: of the manifest.
        name: of the detector.
        source: folder with the ONNX model and `tokenizer.json`.
        options: fields of :class:`ClassifierEntry` besides the pins.

    Raises:
        InputError: the name or an option is invalid, or a file is missing.
        ModelError: the classifier cannot be used.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"`{name}` is not a detector name; use lower case, digits, `-` and `_`")
    entries = read_manifest(directory)
    model = next((p for p in (source / MODEL, source / "onnx" / MODEL) if p.is_file()), None)
    if model is None or not (source / TOKENIZER).is_file():
        raise InputError(f"`{source}` lacks `{MODEL}` or `{TOKENIZER}`")
    incoming = directory / f".{name}.new"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    try:
        pins = {}
        for file, path in ((MODEL, model), (TOKENIZER, source / TOKENIZER)):
            shutil.copyfile(path, incoming / file)
            pins[file] = hashlib.sha256((incoming / file).read_bytes()).hexdigest()
        try:
            entry = ClassifierEntry.model_validate({"files": pins, **options})
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"`{first['loc'][0]}`: {first['msg']}") from error
        TextClassifier(name, entry, incoming).prepare()
        shutil.rmtree(directory / name, ignore_errors=True)
        incoming.replace(directory / name)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    _write(directory, {**entries, name: entry})
    return TextClassifier(name, entry, directory / name)


def remove_classifier(directory: Path, name: str) -> None:
    """Remove a classifier and its files.

    Raises:
        InputError: the name is unknown.
    """
    entries = read_manifest(directory)
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise InputError(f"unknown detector `{name}`; added: {known}")
    del entries[name]
    _write(directory, entries)
    shutil.rmtree(directory / name, ignore_errors=True)


def _write(directory: Path, entries: dict[str, ClassifierEntry]) -> None:
    document = {name: entry.model_dump() for name, entry in sorted(entries.items())}
    path = directory / f".{MANIFEST}.new"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    os.replace(path, directory / MANIFEST)  # noqa: PTH105  (atomic on every system)
