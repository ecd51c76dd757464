"""A draft of a policy, checked and tested in its own words before it is put in force."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guard.core.errors import PolicyError, PolicyProblem
from guard.detectors import DetectorResources, create_detectors
from guard.inference.onnx import load_models
from guard.inference.text_classifier import load_classifiers
from guard.policy import load_policies
from guard.replay.policy_tests import SUFFIX, Coverage, load_suite, run_suite
from guard.settings import BUILTIN, models_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.policy import Policy


@contextmanager
def drafted(policy: Sequence[Path], drafts: dict[str, str]) -> Iterator[dict[str, Path]]:
    """Write drafts where they can be read as files, each beside copies of its neighbours.

    Args:
        policy: the files that make the policy.
        drafts: new text by path.

    Yields:
        The copy to read by the path of each policy file and draft; a shipped policy is itself.
    """
    with tempfile.TemporaryDirectory(prefix="guard-draft-") as place:
        found: dict[str, Path] = {}
        folders: dict[Path, Path] = {}
        for text in dict.fromkeys([*map(str, policy), *drafts]):
            if text.startswith(BUILTIN):
                found[text] = Path(text)
                continue
            folder = Path(text).resolve().parent
            if folder not in folders:
                folders[folder] = Path(place) / str(len(folders))
                folders[folder].mkdir()
                for each in folder.glob("*.yaml"):
                    shutil.copyfile(each, folders[folder] / each.name)
            found[text] = folders[folder] / Path(text).name
        for text, content in drafts.items():
            found[text].write_text(content, encoding="utf-8", newline="")
        yield found


def read_draft(policy: Sequence[Path], drafts: dict[str, str]) -> Policy:
    """Return the policy as the drafts would make it.

    Raises:
        PolicyError: with the real files' names.
    """
    with drafted(policy, drafts) as found:
        try:
            return load_policies([found[str(path)] for path in policy])
        except PolicyError as error:
            raise PolicyError(_real_names(error, found)) from error


def _real_names(error: PolicyError, found: dict[str, Path]) -> tuple[PolicyProblem, ...]:
    names = {str(copy): name for name, copy in found.items()}
    return tuple(replace(one, path=names.get(one.path, one.path)) for one in error.problems)


def run_tests(policy: Sequence[Path], drafts: dict[str, str]) -> dict[str, Any]:
    """Run the tests that lie beside the policy's files, in the drafts' words.

    Raises:
        GuardError: the draft cannot be read.
    """
    detectors = create_detectors(
        DetectorResources(load_models(models_directory()), load_classifiers())
    )
    after = read_draft(policy, drafts)
    outcomes: list[dict[str, Any]] = []
    covered: dict[str, Coverage] = {}
    with drafted(policy, drafts) as found:
        for path in policy:
            suite = found[str(path)].with_name(Path(path).stem + SUFFIX)
            if str(path).startswith(BUILTIN) or not suite.is_file():
                continue
            try:
                loaded = load_suite(suite)
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
