"""ONNX text classifiers of character n-grams, for the port of the extra ``detectors``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from lab.models import serialised

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNKNOWN: Final = "[UNK]"


def write_ngram_classifier(
    folder: Path,
    grams: Sequence[str],
    idf: np.ndarray,
    weights: tuple[np.ndarray, float],
) -> None:
    """Write `model.onnx` and `tokenizer.json` of a logistic regression over TF-IDF.

    The tokenizer gives one token per character; the model counts n-grams of tokens, weighs them
    with ``(1 + log count) * idf``, normalises the row and returns one probability per label.

    Args:
        folder: receives the two files.
        grams: character n-grams, one per feature.
        idf: weight of each feature.
        weights: coefficient of each feature, and the intercept.
    """
    characters = sorted({character for gram in grams for character in gram})
    vocabulary = {UNKNOWN: 0, **{one: number for number, one in enumerate(characters, 1)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "model.onnx").write_bytes(_graph(grams, vocabulary, idf, weights))


def _graph(
    grams: Sequence[str],
    vocabulary: dict[str, int],
    idf: np.ndarray,
    weights: tuple[np.ndarray, float],
) -> bytes:
    order = sorted(range(len(grams)), key=lambda index: len(grams[index]))
    ordered = [grams[index] for index in order]
    lengths = range(1, len(ordered[-1]) + 1)
    counted = helper.make_node(
        "TfIdfVectorizer",
        ["input_ids"],
        ["counts"],
        mode="TF",
        min_gram_length=len(ordered[0]),
        max_gram_length=len(ordered[-1]),
        max_skip_count=0,
        pool_int64s=[vocabulary[character] for character in "".join(ordered)],
        ngram_counts=[sum(len(one) for one in grams if len(one) < length) for length in lengths],
        ngram_indexes=order,
    )
    coefficients, intercept = weights
    constants = {
        "one": np.array(1, np.float32),
        "tiny": np.array(1e-12, np.float32),
        "idf": idf.astype(np.float32)[None],
        "coefficients": coefficients.astype(np.float32)[:, None],
        "intercept": np.array([intercept], np.float32),
    }
    nodes = [
        counted,
        helper.make_node("Max", ["counts", "one"], ["at_least_one"]),
        helper.make_node("Log", ["at_least_one"], ["logged"]),
        helper.make_node("Min", ["counts", "one"], ["present"]),
        helper.make_node("Add", ["logged", "present"], ["frequency"]),
        helper.make_node("Mul", ["frequency", "idf"], ["weighed"]),
        helper.make_node("ReduceL2", ["weighed"], ["length"], axes=[1], keepdims=1),
        helper.make_node("Max", ["length", "tiny"], ["divisor"]),
        helper.make_node("Div", ["weighed", "divisor"], ["row"]),
        helper.make_node("Gemm", ["row", "coefficients", "intercept"], ["logit"]),
        helper.make_node("Sigmoid", ["logit"], ["probability"]),
        helper.make_node("Sub", ["one", "probability"], ["other"]),
        helper.make_node("Concat", ["other", "probability"], ["probabilities"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "ngrams",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, None])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return serialised(graph)
