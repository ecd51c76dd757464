"""Trains the second prefix model: the road to a send, and where its destinations came from.

Run from a source checkout::

    python -m guard.lab.train_provenance [--data DIRECTORY] [--out DIRECTORY]

The training runs are generated, with the user's prompts seen and hidden; the recorded runs and
generated runs of another seed are for testing only; one trial adds the recorded runs to the
training, each agent model and each suite judged by a forest that has not seen it.  The question is
one: at the ladder's own recall, does the model ask less?
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from guard.adapters.onnx import load_models
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.lab.card import write_artefact
from guard.lab.eval_recorded import AGENTDOJO, BENIGN_MEMORY, LEONG, example
from guard.lab.generate.evasions import evasions
from guard.lab.generate.hard_negatives import hard_negatives
from guard.lab.generate.hippo import hippo_attacks, hippo_benign
from guard.lab.judged_runs import Bench
from guard.lab.ladder_trial import trial
from guard.lab.models import SETTINGS, TITLES, make, scores, verified_export
from guard.lab.paper import Algorithm
from guard.lab.provenance_features import FEATURES
from guard.lab.provenance_rows import Example, examples
from guard.lab.recorded_sets import agentdojo_side, mail_receiver
from guard.replay.traces import read_traces
from guard.shipped import models_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.model import Json
    from guard.lab.judged_runs import JudgedCall
    from guard.lab.ladder_trial import Trial
    from guard.replay.traces import Run

MODEL: Final = "provenance-30"
TRAIN_SEED: Final = "train"
TEST_SEED: Final = "test"
RECORDED: Final = ("leong and benign memory", "agentdojo")
LIMITS: Final = (
    "An explanation, not a gate. The training runs are generated: the model has learnt the shapes "
    "that the generator knows. Where it asks less than the ladder it does so by trusting what the "
    "guard has not seen, which an attacker who gets text past the guard would use; so no shipped "
    "policy lets it allow anything."
)


async def generated(bench: Bench, seed: str, scale: float) -> list[Example]:
    """Return the sends of generated runs, each run with its prompts seen and hidden."""
    many = [max(1, round(number * scale)) for number in (10, 16, 4, 12)]
    runs: list[Run] = [
        *evasions(seed, many[0]),
        *hard_negatives(seed, many[1]),
        *hippo_attacks(seed, many[2]),
        *hippo_benign(seed, many[3]),
    ]
    hidden = [
        run.model_copy(update={"run_id": f"{run.run_id}-hidden", "prompts": ()}) for run in runs
    ]
    policy = example("mail_assistant.yaml")
    return await examples(bench, [*runs, *hidden], policy, _labelled, _kind)


def _labelled(call: JudgedCall) -> bool | None:
    if call.call.i in call.run.labels["attack_calls"]:
        return True
    return False if call.call.i in call.run.labels["own_calls"] else None


def _kind(call: JudgedCall) -> str:
    return str(call.run.labels["kind"]).partition("-")[0]


async def recorded(bench: Bench, data: Path) -> dict[str, list[Example]]:
    """Return the sends of the recorded runs by set."""
    mail = [*read_traces([data / LEONG]), *read_traces([data / BENIGN_MEMORY])]
    return {
        RECORDED[0]: await examples(bench, mail, example("mail_assistant.yaml"), _mailed, _agent),
        RECORDED[1]: await examples(
            bench,
            list(read_traces([data / AGENTDOJO])),
            example("agentdojo.yaml"),
            lambda call: agentdojo_side(call) == "injected",
            lambda call: f"{call.run.labels['suite']}/{call.run.labels.get('user_task')}",
        ),
    }


def _agent(call: JudgedCall) -> str:
    labels = call.run.labels
    return f"{labels.get('model')}/{labels.get('defense')}"


def _mailed(call: JudgedCall) -> bool | None:
    receiver = mail_receiver(call)
    return (
        None if receiver == "made_up" and not call.call.args.get("to") else receiver == "attacker"
    )


def fit(train: list[Example]) -> tuple[Any, float, np.ndarray]:
    """Return the model, its threshold, and scores of each send by a model without its kind.

    The threshold is the highest that loses none of the training attacks.
    """
    rows = np.array([send.row for send in train], dtype=np.float32)
    labels = np.array([send.attack for send in train])
    kinds = np.array([send.kind for send in train])
    forest = make(Algorithm.RANDOM_FOREST)
    apart: np.ndarray = cross_val_predict(
        forest, rows, labels, groups=kinds, cv=LeaveOneGroupOut(), method="predict_proba"
    )[:, 1]
    forest.fit(rows, labels)
    asked = np.array([send.asked for send in train])
    threshold = float(scores(forest, rows)[labels & asked].min())
    return forest, threshold, apart


def left_out(train: list[Example], recorded_sends: list[Example]) -> np.ndarray:
    """Return scores of recorded sends by forests that have not seen their agent model or suite.

    The generated sends are in every training.

    Args:
        train: the generated sends.
        recorded_sends: their kinds begin with the agent model or the suite, before a slash.
    """
    wholes = np.array([send.kind.partition("/")[0] for send in recorded_sends])
    rows = np.array([send.row for send in [*train, *recorded_sends]], dtype=np.float32)
    labels = np.array([send.attack for send in [*train, *recorded_sends]])
    answer = np.zeros(len(recorded_sends))
    for whole in np.unique(wholes):
        seen = np.concatenate([np.ones(len(train), dtype=bool), wholes != whole])
        forest = make(Algorithm.RANDOM_FOREST).fit(rows[seen], labels[seen])
        answer[wholes == whole] = scores(forest, rows[~seen])
    return answer


def card(
    onnx: bytes, train: list[Example], threshold: float, trials: Iterable[Trial]
) -> dict[str, Json]:
    """Return the model card."""
    found = list(trials)
    return {
        "name": MODEL,
        "sha256": hashlib.sha256(onnx).hexdigest(),
        "model": {
            "type": TITLES[Algorithm.RANDOM_FOREST],
            **SETTINGS[Algorithm.RANDOM_FOREST],
        },
        "features": list(FEATURES),
        "session": "calls before the send, and the attestations of the values in it",
        "label": {"name": "attack", "meaning": "the generated run's send that must be stopped"},
        "training_data": {
            "generator": "guard.lab.generate",
            "seed": TRAIN_SEED,
            "sends": len(train),
            "attacks": sum(send.attack for send in train),
            "distinct_rows": len({send.row for send in train}),
            "prompts": "each run once with the user's prompts and once without",
        },
        "threshold": {
            "value": threshold,
            "cost": "the highest that loses no training attack which the ladder stops",
        },
        "evaluation": {one.name: one.document() for one in found},
        "limits": LIMITS,
        "versions": {
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            **{name: version(name) for name in ("scikit-learn", "skl2onnx", "onnx", "numpy")},
        },
    }


async def _collect(
    bench: Bench, data: Path | None, scale: float
) -> tuple[list[Example], dict[str, list[Example]]]:
    train = await generated(bench, TRAIN_SEED, scale)
    tests = {"generated, another seed": await generated(bench, TEST_SEED, scale)}
    if data is not None:
        tests.update(await recorded(bench, data))
    return train, tests


def main() -> None:
    """Train, test, print the trials, and write the artefact where one is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, help="directory of the recorded runs")
    parser.add_argument("--out", type=Path, help="models directory to write to")
    parser.add_argument("--scale", type=float, default=1.0, help="runs per kind, times the default")
    options = parser.parse_args()
    with EmbeddedRedis() as redis:
        bench = Bench(redis.url, load_models(models_directory()))
        train, tests = asyncio.run(_collect(bench, options.data, options.scale))
    model, threshold, apart = fit(train)
    trials = [trial("generated, each kind by a model without it", train, apart, threshold)]
    for name, sends in tests.items():
        rows = np.array([send.row for send in sends], dtype=np.float32)
        trials.append(trial(name, sends, scores(model, rows), threshold))
    if options.data is not None:
        every = [send for name in RECORDED for send in tests[name]]
        answer = left_out(train, every)
        end = len(tests[RECORDED[0]])
        for name, part in zip(RECORDED, (slice(None, end), slice(end, None)), strict=True):
            title = f"{name}, each agent model or suite by a model without it"
            trials.append(trial(title, every[part], answer[part], threshold))
    for one in trials:
        print(json.dumps({"set": one.name, **one.document()}))
    rows = np.array([send.row for send in train], dtype=np.float32)
    onnx, _ = verified_export(model, MODEL, rows)
    if options.out is not None:
        write_artefact(options.out, onnx, card(onnx, train, threshold, trials))


if __name__ == "__main__":
    main()
