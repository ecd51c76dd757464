"""A draft of a policy, checked and tested in its own words before it is put in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guard.core.errors import PolicyError
from guard.detectors import DetectorResources, create_detectors
from guard.inference.onnx import load_models
from guard.inference.text_classifier import load_classifiers
from guard.policy import load_policies
from guard.replay.policy_tests import SUFFIX, Coverage, load_suite, run_suite
from guard.settings import BUILTIN, models_directory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def run_tests(policy: Sequence[Path], drafts: dict[str, str]) -> dict[str, Any]:
    """Run the tests that lie beside the policy's files, in the drafts' words.

    Raises:
        GuardError: the draft cannot be read.
    """
    detectors = create_detectors(
        DetectorResources(load_models(models_directory()), load_classifiers())
    )
    after = load_policies(policy, drafts)
    outcomes: list[dict[str, Any]] = []
    covered: dict[str, Coverage] = {}
    for path in policy:
        suite = path.with_name(path.stem + SUFFIX)
        if str(path).startswith(BUILTIN) or not suite.is_file():
            continue
        try:
            loaded = load_suite(suite, drafts)
            used = covered.setdefault(loaded.policy.digest, Coverage(loaded.policy))
            done = run_suite(loaded, detectors, used)
        except PolicyError as error:
            texts = [f"{one.line}: {one.message}" for one in error.problems]
            outcomes.append({"name": suite.name, "line": 0, "complaints": texts})
            continue
        outcomes += [
            {"name": one.case.name, "line": one.line, "complaints": list(one.complaints)}
            for one in done
        ]
    tests = {
        "run": len(outcomes),
        "failed": [one for one in outcomes if one["complaints"]],
        "coverage": [
            {"policy": one.policy.name, "share": one.share, "missed": list(one.missed)}
            for one in covered.values()
        ],
    }
    return {"name": after.name, "digest": after.digest, "tests": tests}
