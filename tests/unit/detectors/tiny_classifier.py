"""A tiny ONNX text classifier: finds the word `obey`, by token id."""

import json

import pytest

WORDS = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "obey": 3, "please": 4, "weather": 5}


def write(folder, shape="labels", value=4.0, inputs="all"):
    """Write `model.onnx` and `tokenizer.json`, and return their folder.

    Args:
        folder: is made.
        shape: `labels`: two logits; `flat`: no axis of labels; `one`: a single logit.
        value: of the logit for instructions where the word occurs.
        inputs: `all` three of a transformer, `ids` alone, or `other`: an unknown one.
    """
    onnx = pytest.importorskip("onnx", reason="the extra `train` is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="the extra `detectors` is not installed")
    helper, proto = onnx.helper, onnx.TensorProto
    folder.mkdir(parents=True, exist_ok=True)
    names = {
        "all": ["input_ids", "attention_mask", "token_type_ids"],
        "ids": ["input_ids"],
        "other": ["input_ids", "pixels"],
    }[inputs]
    constants = [
        helper.make_tensor("word", proto.INT64, [], [WORDS["obey"]]),
        helper.make_tensor("scale", proto.FLOAT, [1, 2], [-value, value]),
        helper.make_tensor("bias", proto.FLOAT, [1, 2], [2.0, -2.0]),
        helper.make_tensor("axis", proto.INT64, [1], [1]),
        helper.make_tensor("last", proto.INT64, [1], [1]),
    ]
    nodes = [
        helper.make_node("Equal", ["input_ids", "word"], ["same"]),
        helper.make_node("Cast", ["same"], ["hits"], to=proto.FLOAT),
        helper.make_node("ReduceMax", ["hits", "axis"], ["any"], keepdims=1),
        helper.make_node("Mul", ["any", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["logits"]),
        helper.make_node("Gather", ["logits", "last"], ["single"], axis=1),
        helper.make_node("ReduceMax", ["logits", "axis"], ["flat"], keepdims=0),
    ]
    result = {"labels": "logits", "one": "single", "flat": "flat"}[shape]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, proto.INT64, [1, None]) for name in names],
        [helper.make_tensor_value_info(result, proto.FLOAT, None)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, "[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"id2label": {"0": "SAFE", "1": "ORDER"}}))
    return folder
