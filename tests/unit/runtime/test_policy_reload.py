"""Hot reload: every change whole or not at all."""

from types import SimpleNamespace

import pytest

from guard.core.errors import AuditError, PolicyError
from guard.core.metrics import ERRORS, POLICY_STALE
from guard.runtime.policy_reload import EVENT, PolicyFiles, PolicyReloader
from tests.guards import Lines

POLICY = """version: 1
name: {name}
tools:
  - match: [read]
    role: retrieve
rules:
  - {{id: allow, type: tool, effect: allow, mapped: true}}
"""


class Recorder(Lines):
    """An audit log and metrics that remember."""

    def __init__(self):
        super().__init__()
        self.reloads = []
        self.stale = self.policy = None

    def count(self, metric, *labels):
        if metric is not ERRORS:
            self.reloads.append(*labels)

    def set(self, metric, value):
        assert metric is POLICY_STALE
        self.stale = value

    def set_policy(self, policy):
        self.policy = policy.name


@pytest.fixture
def path(tmp_path):
    """Return a policy file with a valid policy."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(name="first"), encoding="utf-8")
    return path


def running(path, recorder, keep=None):
    """Return the policy in force and what reloads it."""
    files = PolicyFiles([path], keep)
    force = SimpleNamespace(policy=files.first())

    def swap(policy):
        force.policy = policy

    reloader = PolicyReloader(
        files=files, current=lambda: force.policy, swap=swap, audit=recorder, metrics=recorder
    )
    return force, files, reloader


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_valid_change_is_put_in_force(path, recorded):
    """Policy, audit line and metric name the new one; what cannot be recorded is not made."""
    recorder = Recorder()
    force, _, reloader = running(path, recorder)
    recorder.error = None if recorded else AuditError("no space")
    before = force.policy.digest
    path.write_text(POLICY.format(name="second"), encoding="utf-8")

    assert await reloader.reload() == ("swapped" if recorded else "kept")

    assert force.policy.name == ("second" if recorded else "first")
    if recorded:
        [(name, fields)] = recorder.events
        found = (name, fields["outcome"], fields["policy"], fields["previous"])
        assert found == (EVENT, "swapped", force.policy.digest, before)
        assert recorder.reloads == ["swapped"]
        assert (recorder.stale, recorder.policy) == (0, "second")


@pytest.mark.parametrize(
    "content",
    [
        "version: 1\nname: x\n",
        POLICY.format(name="second").replace("effect: allow", "effect: alow"),
        POLICY.format(name="second").replace("allow, mapped", "block, mapped"),
        POLICY.format(name="second") + "rules: []\n",
        "",
        "\x00",
        None,
        "a: " + "[" * 5000,
    ],
    ids=["no rule", "typo", "allows nothing", "duplicate key", "empty", "binary", "gone", "deep"],
)
async def test_a_change_with_a_problem_keeps_the_old_policy(path, content):
    """Whatever is wrong with the files, the running policy stays and the problem is recorded."""
    recorder = Recorder()
    force, _, reloader = running(path, recorder)
    before = force.policy
    path.unlink()
    if content is not None:
        path.write_text(content, encoding="utf-8")

    assert await reloader.reload() == "kept"

    assert force.policy is before
    [(_, fields)] = recorder.events
    assert (fields["outcome"], fields["policy"]) == ("kept", before.digest)
    assert fields["problems"]
    assert recorder.reloads == ["kept"]
    assert (recorder.stale, recorder.policy) == (1, None)


def test_a_change_counts_when_it_has_come_to_rest(path):
    """A file that is still being written is not read."""
    _, files, _ = running(path, Recorder())
    seen = [files.settled_change() for _ in range(3)]
    for size in range(3):
        path.write_text(POLICY.format(name="second") + "#" * size, encoding="utf-8")
        seen.append(files.settled_change())

    assert seen == [False] * 6
    assert files.settled_change()


async def test_a_new_worker_starts_with_the_last_good_files(path, tmp_path):
    """A worker that is replaced while the files are broken must not end the service."""
    keep = tmp_path / "run"
    keep.mkdir()
    with pytest.raises(PolicyError):
        PolicyFiles([tmp_path / "missing.yaml"], keep).first()
    _, _, reloader = running(path, Recorder(), keep)
    path.write_text(POLICY.format(name="second"), encoding="utf-8")
    await reloader.reload()
    path.write_text("broken", encoding="utf-8")

    recorder = Recorder()
    force, files, again = running(path, recorder, keep)

    assert force.policy.name == "second"
    assert [files.settled_change() for _ in range(2)] == [False, True]
    assert await again.reload() == "kept"
    assert force.policy.name == "second"
