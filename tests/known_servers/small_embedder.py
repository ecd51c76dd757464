"""An embedding model small enough to be made: what stands in for one that would be downloaded.

Chroma and fastembed look for all-MiniLM-L6-v2 as an ONNX model with the files of its tokenizer in a
directory of their own, and download it where it is not there.  This one is found there instead: a
table of fixed random vectors, one for each letter, so that texts with the same letters are alike.
"""

import json
import string

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 384
"""Of the vectors, as all-MiniLM-L6-v2 has them."""
LETTERS = string.ascii_lowercase + string.digits + string.punctuation
VOCABULARY = ["[PAD]", "[UNK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
TOKENIZER = {
    "version": "1.0",
    "normalizer": {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {token: number for number, token in enumerate(VOCABULARY)},
    },
}


def write_embedder(directory):
    """Write the model and everything beside it that a download would have brought."""
    directory.mkdir(parents=True)
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    documents = {
        "tokenizer.json": TOKENIZER,
        "tokenizer_config.json": {**named, "model_max_length": 256},
        "special_tokens_map.json": named,
        "config.json": {"pad_token_id": 0},
    }
    for name, document in documents.items():
        (directory / name).write_text(json.dumps(document), encoding="utf-8")
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    onnx.save(_model(), str(directory / "model.onnx"))


def _model():
    """Return the model: ids of tokens, shape (texts, tokens), to their vectors."""
    table = np.random.default_rng(0).standard_normal((len(VOCABULARY), WIDTH), np.float32)
    tokens = ["texts", "tokens"]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        "letters",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, tokens)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*tokens, WIDTH])],
        [numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
