"""The paper's equations in both readings, and its loss against numerical slopes."""

import numpy as np
import pytest

from guard.extensions.propagation.credibility import (
    THRESHOLD,
    Reading,
    Weights,
    credibility,
    poison_probability,
    priority,
)


def test_as_printed_nothing_incredible_is_ever_repaired():
    """At C = 0 the printed R is at most 0.70; ours reaches 1."""
    worst = np.array([0.0])
    one = np.array([1.0])
    printed = priority(poison_probability(worst, one, Reading.PRINTED), one, one)
    ours = priority(poison_probability(worst, one), one, one)

    assert printed[0] == pytest.approx(0.70)
    assert printed[0] < THRESHOLD < ours[0] == pytest.approx(1.0)


def test_credibility_is_a_weighted_mean():
    """Left-out terms count nothing, and the result stays between 0 and 1."""
    terms = (np.array([1.0]), np.array([0.5]), np.array([0.0]))

    assert credibility(*terms)[0] == pytest.approx(0.5)
    assert credibility(*terms, Weights(agreement=0.0))[0] == pytest.approx(0.75)


@pytest.mark.parametrize("wide", [768, 10])
def test_a_model_of_texts_takes_hashed_words_or_nothing(wide):
    """One that answers no probabilities is an error, as is one of another width."""
    onnx = pytest.importorskip("onnx", reason="the lab is not installed")
    from onnx import TensorProto, helper

    from guard.core.errors import ModelError
    from guard.extensions.propagation.hashed_text import hashed
    from guard.inference.onnx import TextModel

    node = helper.make_node("ReduceSum", ["text"], ["sum"], keepdims=1)
    graph = helper.make_graph(
        [node],
        "sum",
        [helper.make_tensor_value_info("text", TensorProto.FLOAT, [None, wide])],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [1, 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    content = model.SerializeToString()
    if wide != 768:
        with pytest.raises(ModelError, match="768"):
            TextModel(content)
        return
    negative = next(word for word in "abcdefgh" if hashed([word]).sum() < 0)
    with pytest.raises(ModelError, match="no probabilities"):
        TextModel(content).probabilities([negative])
