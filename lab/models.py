"""Export of logistic models to ONNX, verified against the fitted model.  Deterministic."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnxruntime as ort
from onnx import GraphProto, TensorProto, checker, helper

from guard.core.errors import ModelError

OPSET: Final = 17
IR_VERSION: Final = 8
LARGEST_DIFFERENCE: Final = 1e-5
"""Largest difference from the fitted model's scores with which an export is written."""


def scores(model: Any, rows: np.ndarray) -> np.ndarray:
    """Return the probability of label 1 for each row, shape (rows,)."""
    return np.asarray(model.predict_proba(rows)[:, 1])


def onnx_probabilities(onnx: bytes, rows: np.ndarray) -> np.ndarray:
    """Return the exported model's probability of each class for each row, shape (rows, classes)."""
    session = ort.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["probabilities"], {"features": rows})[0])


def verified_export(model: Any, onnx: bytes, name: str, rows: np.ndarray) -> tuple[bytes, float]:
    """Return an export, and its largest difference from the fitted model on these rows.

    The input is float32 ``[None, width]``, the output ``probabilities``.

    Raises:
        ModelError: the difference is above :data:`LARGEST_DIFFERENCE`.
    """
    exact = model.predict_proba(rows)
    difference = float(
        np.abs(onnx_probabilities(onnx, rows.astype(np.float32)) - exact).max(initial=0.0)
    )
    if not difference <= LARGEST_DIFFERENCE:
        raise ModelError(
            f"the export of `{name}` differs from the fitted model by {difference:.2e}, "
            "try the versions that requirements/dev.txt pins"
        )
    return onnx, difference


def bounded(rows: np.ndarray) -> np.ndarray:
    """Return counts between 0 and 1, so that a long session does not saturate a score."""
    return np.asarray(rows / (1 + rows))


def softmax_onnx(name: str, weights: np.ndarray, bias: np.ndarray) -> bytes:
    """Return a logistic model of bounded features as ONNX.

    Args:
        name: of the graph.
        weights: shape (features, classes).
        bias: shape (classes,).
    """
    width, classes = weights.shape
    real = TensorProto.FLOAT
    constants = [
        helper.make_tensor("one", real, [1], [1.0]),
        helper.make_tensor("weights", real, weights.shape, weights.astype(np.float32).flatten()),
        helper.make_tensor("bias", real, [classes], bias.astype(np.float32)),
    ]
    nodes = [
        helper.make_node("Add", ["features", "one"], ["above"]),
        helper.make_node("Div", ["features", "above"], ["bounded"]),
        helper.make_node("Gemm", ["bounded", "weights", "bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    given = helper.make_tensor_value_info("features", real, [None, width])
    answer = helper.make_tensor_value_info("probabilities", real, [None, classes])
    graph = helper.make_graph(nodes, name, [given], [answer], constants)
    return serialised(graph)


def serialised(graph: GraphProto) -> bytes:
    """Return a graph as a checked model."""
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
    checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))
