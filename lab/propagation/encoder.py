"""The contrastive encoder (equations 2 and 3) in NumPy: seeded, on the CPU, to ONNX with a card.

Text is hashed to 768 dimensions, projected to 512 by a fixed matrix, and encoded by
``normalise(W2 relu(W1 x))`` with W1 256 x 512 and W2 128 x 256.  Pairs of consistent provenance and
outcome, or two views of one item, are pulled together by NT-Xent; items of low credibility, or that
others contradict, are negatives.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from guard.propagation.hashed_text import HASHED

if TYPE_CHECKING:
    from pathlib import Path

Floats = NDArray[np.float64]
PROJECTED: Final = 512
HIDDEN: Final = 256
ENCODED: Final = 128
TEMPERATURES: Final = (0.05, 0.1, 0.2, 0.5)
_DECAY: Final = (0.9, 0.999)


@dataclass(frozen=True, slots=True)
class Settings:
    """How an encoder is trained."""

    temperature: float = 0.1
    steps: int = 60
    pairs: int = 192
    rate: float = 2e-3
    seed: int = 0
    masked: float = 0.15
    """Share of the features that a view lacks."""


def projection() -> Floats:
    """Return the fixed matrix from 768 to 512."""
    return np.random.default_rng(HASHED).normal(0, 1 / np.sqrt(PROJECTED), (HASHED, PROJECTED))


@dataclass(slots=True)
class Encoder:
    """The trained weights."""

    first: Floats
    """512 x 256."""
    second: Floats
    """256 x 128."""
    layer: Floats
    """Of the recognition layer, 128 and a bias."""
    losses: list[float]

    def encode(self, rows: Floats) -> Floats:
        """Return h of rows of 512."""
        return _unit(np.maximum(rows @ self.first, 0.0) @ self.second)

    def recognise(self, rows: Floats) -> Floats:
        """Return sigmoid(w h) of rows of 512."""
        return _sigmoid(self.encode(rows) @ self.layer[:-1] + self.layer[-1])


def train(
    rows: Floats,
    doubtful: NDArray[np.bool_],
    groups: NDArray[np.int64],
    poisoned: NDArray[np.bool_],
    how: Settings,
) -> Encoder:
    """Return an encoder and its recognition layer.

    Args:
        rows: n x 512.
        doubtful: whether each row is of low credibility or contradicted: the negatives, which make
            no positive pairs.
        groups: rows of one group share provenance and outcome, and make positive pairs.
        poisoned: labels that the recognition layer is fitted on, and nothing else is.
        how: temperature, steps, seed.
    """
    chance = np.random.default_rng(how.seed)
    first = chance.normal(0, np.sqrt(2 / PROJECTED), (PROJECTED, HIDDEN)).astype(rows.dtype)
    second = chance.normal(0, np.sqrt(2 / HIDDEN), (HIDDEN, ENCODED)).astype(rows.dtype)
    good, bad = np.flatnonzero(~doubtful), np.flatnonzero(doubtful)
    partners = _partners(groups, doubtful)
    moments = [
        np.zeros_like(first),
        np.zeros_like(first),
        np.zeros_like(second),
        np.zeros_like(second),
    ]
    losses: list[float] = []
    for step in range(1, how.steps + 1):
        one = chance.choice(good, how.pairs)
        other = partners[one]
        # Half of the pairs are two views of one item.
        same = chance.random(how.pairs) < 0.5
        other = np.where(same, one, other)
        negatives = chance.choice(bad, how.pairs) if len(bad) else chance.choice(good, how.pairs)
        batch = np.concatenate((rows[one], rows[other], rows[negatives]))
        batch = batch * (chance.random(batch.shape) > how.masked)
        loss, slopes = _contrast(batch, first, second, how)
        losses.append(loss)
        _descend((first, second), slopes, moments, step, how.rate)
    encoder = Encoder(first, second, np.zeros(ENCODED + 1, dtype=rows.dtype), losses)
    encoder.layer = logistic(encoder.encode(rows), poisoned)
    return encoder


def _partners(groups: NDArray[np.int64], doubtful: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return for each row another good one of its group, itself where there is none."""
    partners = np.arange(len(groups))
    order = np.lexsort((np.arange(len(groups)), groups))
    order = order[~doubtful[order]]
    follows = np.roll(order, -1)
    same = groups[order] == groups[follows]
    partners[order[same]] = follows[same]
    return partners


def _contrast(
    batch: Floats, first: Floats, second: Floats, how: Settings
) -> tuple[float, tuple[Floats, Floats]]:
    """Return the NT-Xent loss (equation 2) of a batch and its slopes.

    The first two thirds of the batch are pairs; the last third is negatives only.
    """
    hidden = np.maximum(batch @ first, 0.0)
    raw = hidden @ second
    norms = np.linalg.norm(raw, axis=1, keepdims=True) + 1e-9
    codes = raw / norms
    count = 2 * how.pairs
    logits = codes[:count] @ codes.T / how.temperature
    places = np.arange(count)
    logits[places, places] = -np.inf
    pair = np.concatenate((places[how.pairs :], places[: how.pairs]))
    logits -= logits.max(axis=1, keepdims=True)
    odds = np.exp(logits)
    odds /= odds.sum(axis=1, keepdims=True)
    loss = float(-np.log(odds[places, pair] + 1e-12).mean())
    slope = odds
    slope[places, pair] -= 1.0
    slope /= count * how.temperature
    by_code = np.zeros_like(codes)
    by_code[:count] += slope @ codes
    by_code += slope.T @ codes[:count]
    by_raw = (by_code - codes * (by_code * codes).sum(axis=1, keepdims=True)) / norms
    by_hidden = (by_raw @ second.T) * (hidden > 0)
    return loss, (batch.T @ by_hidden, hidden.T @ by_raw)


def _descend(
    weights: tuple[Floats, Floats],
    slopes: tuple[Floats, Floats],
    moments: list[Floats],
    step: int,
    rate: float,
) -> None:
    """Take one step of Adam, in place."""
    for number, (weight, slope) in enumerate(zip(weights, slopes, strict=True)):
        mean, square = moments[2 * number], moments[2 * number + 1]
        mean += (1 - _DECAY[0]) * (slope - mean)
        square += (1 - _DECAY[1]) * (slope**2 - square)
        ahead = mean / (1 - _DECAY[0] ** step)
        move = rate * ahead / (np.sqrt(square / (1 - _DECAY[1] ** step)) + 1e-8)
        np.subtract(weight, move, out=weight)


def logistic(rows: Floats, labels: NDArray[np.bool_]) -> Floats:
    """Return weights and bias of a class-balanced logistic regression, by gradient descent."""
    wide = np.hstack((rows, np.ones((len(rows), 1), dtype=rows.dtype)))
    share = max(labels.mean(), 1e-6)
    balance = np.where(labels, 0.5 / share, 0.5 / max(1 - share, 1e-6))
    weights = np.zeros(wide.shape[1], dtype=rows.dtype)
    for _ in range(200):
        error = ((_sigmoid(wide @ weights) - labels) * balance).astype(wide.dtype)
        weights -= 2.0 * (wide.T @ error / len(rows) + 1e-4 * weights)
    return weights


def linear(rows: Floats, weights: Floats) -> Floats:
    """Return the probabilities of a logistic regression."""
    return _sigmoid(rows @ weights[:-1] + weights[-1])


def _sigmoid(values: Floats) -> Floats:
    found: Floats = 1.0 / (1.0 + np.exp(-np.clip(values, -60, 60)))
    return found


def _unit(rows: Floats) -> Floats:
    found: Floats = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9)
    return found


def write_onnx(encoder: Encoder, path: Path, card: dict[str, Any]) -> dict[str, Any]:
    """Write the encoder as ONNX (768 in, probability out) with its card; return the card.

    Raises:
        ImportError: `onnx` (of the extra ``lab``) is not installed.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    constants = {
        "projection": projection(),
        "first": encoder.first,
        "second": encoder.second,
        "layer": encoder.layer[:-1, None],
        "bias": encoder.layer[-1:],
    }
    nodes = [
        helper.make_node("MatMul", ["text", "projection"], ["row"]),
        helper.make_node("MatMul", ["row", "first"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "second"], ["c"]),
        helper.make_node("LpNormalization", ["c"], ["code"], axis=1, p=2),
        helper.make_node("MatMul", ["code", "layer"], ["d"]),
        helper.make_node("Add", ["d", "bias"], ["e"]),
        helper.make_node("Sigmoid", ["e"], ["probability"]),
    ]
    graph = helper.make_graph(
        nodes,
        "memory",
        [helper.make_tensor_value_info("text", TensorProto.FLOAT, [None, HASHED])],
        [
            helper.make_tensor_value_info("probability", TensorProto.FLOAT, [None, 1]),
            helper.make_tensor_value_info("code", TensorProto.FLOAT, [None, ENCODED]),
        ],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    path.write_bytes(data)
    card = {**card, "sha256": hashlib.sha256(data).hexdigest(), "inputs": HASHED}
    path.with_suffix(".card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return card
