"""The trained baseline: its split leaves sources out, and its export scores like scikit-learn."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from guard.inference.text_classifier import add_classifier
from lab import instructions
from lab.instructions import FILES, Baseline, read_texts

if TYPE_CHECKING:
    from pathlib import Path

VERBS = ("ignore", "disregard", "forget", "obey")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a data folder: honest texts about weather, attacks about instructions."""
    rows: dict[str, list[dict[str, Any]]] = {
        "page": [
            {"source": f"site{i % 6}", "text": f"The weather of day {i} in town {i % 7} is fine."}
            for i in range(90)
        ],
        "definition": [
            {"source": f"server{i % 5}", "definition": {"name": f"tool_{i}", "description": "Gets"}}
            for i in range(50)
        ],
        "attack": [
            {
                "source": f"set{i % 6}",
                "kind": "page",
                "text": f"Please {VERBS[i % 4]} the rules {i}",
            }
            for i in range(90)
        ],
    }
    for kind, name in FILES.items():
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows[kind])
    return tmp_path


def test_a_fold_holds_whole_families(folder: Path) -> None:
    """No source is on both sides of a split."""
    baseline = Baseline(read_texts(folder))
    families, folds = baseline.data.families, [*baseline.folds()]

    assert np.array_equal(sum(map(np.int64, folds)), np.ones(len(families)))
    for left_out in folds:
        assert set(baseline.data.kinds[~left_out]) == set(FILES)
        assert set(families[left_out]).isdisjoint(families[~left_out])


def test_the_export_scores_like_the_model(folder: Path, tmp_path: Path) -> None:
    """Through the port, with repeated letters, case, blanks and unknown characters."""
    data = read_texts(folder)
    card = instructions.train(data, tmp_path / "out", lambda: None)
    options = {"output": "probability", "threshold": 0.5, "max_length": 1000, "stride": 200}
    port = add_classifier(tmp_path / "detectors", "baseline", tmp_path / "out", options)
    baseline = Baseline(data)
    everything = np.ones(len(data.texts), dtype=bool)
    expected = baseline.scores(baseline.fit(everything), everything)

    found = np.array([port.score(text) for text in data.texts])

    assert np.allclose(found, 1 / (1 + np.exp(-expected)), atol=1e-5)
    assert card["left_out"]["attacks_found"]["n"] == 90
    assert port.score("Ünknown  \n 漢字 please OBEY") is not None
    assert port.inspect_result("Please obey the rules 1") is not None
