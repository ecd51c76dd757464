"""The port for ONNX text classifiers: command line, manifest, policy, and each way to fail."""

import json

import pytest
from typer.testing import CliRunner

from guard.cli import app
from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import ModelError, PolicyError
from guard.core.model import Identity, Role, ToolCall
from guard.detectors.instruction_patterns import InstructionPatterns
from guard.inference.text_classifier import load_classifiers
from guard.policy.detector_manifest import MANIFEST
from guard.settings import detectors_directory
from tests.guards import guard_on
from tests.unit.detectors import tiny_classifier

POLICY = """\
version: 1
name: results
rules:
  - {id: allow, type: tool, effect: allow}
  - {id: quiet, type: result, finds: [tiny], effect: block}
"""
ORDER = {"content": [{"type": "text", "text": "please OBEY"}]}
WEATHER = {"content": [{"type": "text", "text": "please, the weather"}]}


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    """Return the directory of added classifiers, empty."""
    monkeypatch.setenv("EGRESS_GUARD_DETECTORS", str(tmp_path / "detectors"))
    return detectors_directory()


@pytest.fixture
def source(tmp_path):
    """Return the folder of the tiny classifier."""
    return tiny_classifier.write(tmp_path / "tiny")


def guard_command(*arguments):
    """Run `guard`; return the exit code and the output."""
    found = CliRunner().invoke(app, [str(one) for one in arguments])
    return found.exit_code, found.output


def started(store, policy_from, policy=POLICY):
    """Return a guard with the added classifiers and a policy that names `tiny`."""
    detectors = (InstructionPatterns(), *load_classifiers())
    return guard_on(store, policy_from(policy), detectors=detectors)


async def codes(guard, content):
    """Return the reasons for which a result is withheld."""
    call = ToolCall("1", Identity("p", "s"), "fetch", {}, "mcp", 1.0)
    result = ToolResult(untraced(ClassifiedCall(call, Role.OTHER)), content, 1.0)
    verdict = await guard.observe(result)
    return [] if verdict is None else [reason.code for reason in verdict.reasons]


@pytest.mark.parametrize("inputs", ["all", "ids"])
async def test_an_added_classifier_withholds_results(store, tmp_path, policy_from, inputs):
    """From the command line to the verdict, for models with three inputs and with one."""
    source = tiny_classifier.write(tmp_path / "tiny", inputs=inputs)
    assert guard_command("detectors", "add", source, "--label", "ORDER")[0] == 0
    guard = started(store, policy_from)

    assert await codes(guard, ORDER) == ["injection_in_result"]
    assert await codes(guard, WEATHER) == []
    assert await codes(guard, "") == []

    code, output = guard_command("detectors", "list", "--json")
    assert (code, json.loads(output)[0]["state"]) == (0, "ready")
    assert guard_command("detectors", "remove", "tiny")[0] == 0
    with pytest.raises(PolicyError, match=r"unknown detector `tiny`; .*guard detectors add"):
        started(store, policy_from)


@pytest.mark.parametrize("position", [0, 25, 99])
async def test_each_window_of_a_text_is_classified(store, policy_from, source, position):
    """At the start, across a border and at the end; beyond the last window, withheld."""
    guard_command(
        *("detectors", "add", source, "--max-length", 28, "--stride", 4, "--max-windows", 5)
    )
    guard = started(store, policy_from)
    words = ["weather"] * 100
    words[position] = "obey"

    assert await codes(guard, " ".join(words)) == ["injection_in_result"]
    assert await codes(guard, "weather " * 100) == []
    [classifier] = load_classifiers()
    order, weather, long = classifier.probabilities(["obey", "weather", "weather " * 200])
    assert weather < order < long == 1
    assert await codes(guard, "weather " * 200) == ["result_too_large"]
    assert await codes(guard, " " * 300_000) == ["result_too_large"]


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"shape": "flat"}, "returned shape"),
        ({"shape": "one"}, "returned shape"),
        ({"value": float("nan")}, "not finite"),
        ({"inputs": "other"}, "takes the input `pixels`"),
    ],
)
def test_an_unusable_model_is_not_added(tmp_path, broken, problem):
    """Wrong shapes, outputs that are not numbers, unknown inputs."""
    source = tiny_classifier.write(tmp_path / "tiny", **broken)

    code, output = guard_command("detectors", "add", source)

    assert code == 1
    assert problem in output
    assert load_classifiers() == ()


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
@pytest.mark.parametrize("change", ["altered", "missing"])
async def test_a_changed_file_stops_the_start(store, policy_from, source, file, change):
    """Each pin is verified before a policy is in force; a policy that does not name it starts."""
    guard_command("detectors", "add", source)
    guard = started(store, policy_from, POLICY.replace("tiny", "instruction_patterns"))
    before = guard.policy
    path = detectors_directory() / "tiny" / file
    path.write_bytes(path.read_bytes() + b" ") if change == "altered" else path.unlink()

    with pytest.raises(ModelError, match=file):
        started(store, policy_from)
    assert guard_command("detectors", "list")[0] == 1
    started(store, policy_from, POLICY.replace("tiny", "instruction_patterns"))
    with pytest.raises(ModelError):
        guard.swap_policy(policy_from(POLICY))
    assert guard.policy is before


@pytest.mark.parametrize("failure", [RuntimeError, MemoryError, None])
async def test_a_detector_that_fails_or_is_not_asked_withholds(
    store, policy_from, source, monkeypatch, failure
):
    """An error inside the model is counted; a guard without its detector releases no result."""
    guard_command("detectors", "add", source)
    guard = started(store, policy_from)

    def fails(*_):
        raise failure

    monkeypatch.setattr("guard.inference.text_classifier.TextClassifier._probability", fails)
    if failure is None:
        guard = guard_on(store, policy_from(POLICY))
    assert await codes(guard, WEATHER) == ["detector_failed" if failure else "rule_error"]
    assert guard.results._metrics.errors["detector"] == (failure is not None)


@pytest.mark.parametrize("manifest", ["{", '{"tiny": {}}', '{"../up": {"files": {}}}'])
def test_an_invalid_manifest_is_an_error(directory, manifest):
    """Unreadable text, a missing field, and a name that is a path."""
    directory.mkdir()
    (directory / MANIFEST).write_text(manifest, encoding="utf-8")

    with pytest.raises(ModelError, match=r"manifest|detector name"):
        load_classifiers()
