"""An upgrade and a roll-back under load: no call is lost, none goes out twice, none unjudged.

The other version is a copy of this one under another number, or, with ``make upgrade BASE=COMMIT``,
the package at that commit.
"""

import os
import re
import shutil
import signal
from collections import Counter
from functools import partial

import pytest

from guard.core import VERSION
from guard.processes.loopback import START_SECONDS
from tests.commits import unpack
from tests.e2e.clients import Load
from tests.e2e.running_guard import ROOT, secrets_file, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
OTHER = "99.0.0"
BASE = os.environ.get("GUARD_UPGRADE_BASE", "")
"""A commit; empty for the copy."""
NAMED, STRANGER = "carol@partner.example", "eve@evil.test"


def package_of(directory, version):
    """Return a directory to import a version of the guard from."""
    directory.mkdir()
    if version == OTHER and BASE:
        unpack(BASE, directory, "guard", "policies", "models", "pyproject.toml")
    else:
        shutil.copytree(ROOT / "guard", directory / "guard")
        for name in ("policies", "models", "pyproject.toml"):
            (directory / name).symlink_to(ROOT / name)
    file = directory / "guard" / "core" / "__init__.py"
    text = re.sub(r'VERSION = "[^"]+"', f'VERSION = "{version}"', file.read_text("utf-8"))
    file.write_text(text, encoding="utf-8")
    # Comes before this checkout, however that is installed.
    first = "import os, sys; sys.path.insert(0, os.path.dirname(__file__))"
    (directory / "sitecustomize.py").write_text(first, encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Return where this version and the other one are imported from."""
    place = tmp_path_factory.mktemp("versions")
    return {version: package_of(place / version, version) for version in (VERSION, OTHER)}


def environment_of(package):
    """Return the variables with which a guard and its workers are those of a directory."""
    # Otherwise the directory in which it is started comes first.
    return {"PYTHONPATH": str(package), "PYTHONSAFEPATH": "1"}


def version_of(guard):
    """Return which versions a guard's metrics name."""
    return {one for one in (VERSION, OTHER) if guard.metric("guard_build_info", version=one)}


def check(load, guards):
    """Nothing lost, nothing twice, nothing unjudged, no stranger's call."""
    sent = bytes(guards[0].upstream.received)
    came = Counter(re.findall(rb'"id": "((?:release|refuse)-\d+-\d+)"', sent))
    lines = [line for guard in guards for line in guard.audit()]

    assert load.failures == []
    assert set(came) == {ident.encode() for ident in load.released}
    assert set(came.values()) == {1}
    decided = [x["enforced"] for x in lines if x["event"] == "guard.decision"]
    assert decided.count("allow") == len(came)


def test_pods_are_upgraded_and_rolled_back_under_load(launch, tmp_path, versions, own_server):
    """What a user said to one version holds at the other, and at the first again.

    Pods of both versions serve side by side until the older one is taken out and ended.
    """
    load, every = Load(to=NAMED, stranger=STRANGER), []
    front = secrets_file(tmp_path / "front.toml", "front")
    options = ("--redis", own_server.url, "--prompt-credentials", front)

    def started(version):
        guard = launch(options=options, environment=environment_of(versions[version]))
        every.append(guard)
        load.ports = (*load.ports, guard.port)
        assert version_of(guard) == {version}
        return guard

    pod = started(VERSION)
    assert pod.note_prompt(f"Mail {NAMED}.", "front", "s1") == 202
    with load:
        load.wait_for(10)
        for version in (OTHER, VERSION):
            successor = started(version)
            load.wait_for(10)
            load.take_out(pod.port)
            assert pod.stop() == 0
            load.wait_for(10)
            pod = successor

    check(load, every)


def test_a_guard_is_upgraded_in_place_and_rolled_back_under_load(launch, tmp_path, versions):
    """SIGUSR2 after the package has changed; one that does not start leaves the worker there is."""
    broken = package_of(tmp_path / "broken", "0.0.0")
    stops = "raise SystemExit(1)\n"
    (broken / "guard" / "runtime" / "worker.py").write_text(stops, encoding="utf-8")
    current, link = tmp_path / "current", tmp_path / "next"
    current.symlink_to(versions[VERSION])
    front = secrets_file(tmp_path / "front.toml", "front")
    options = ("--prompt-credentials", front)
    guard = launch(options=options, environment=environment_of(current))
    assert guard.note_prompt(f"Mail {NAMED}.", "front", "s1") == 202
    seen = [version_of(guard)]
    load = Load(guard.port, to=NAMED, stranger=STRANGER)

    def noted(event):
        return sum(line["event"] == event for line in guard.audit())

    with load:
        load.wait_for(10)
        for package, event in (
            (versions[OTHER], "guard.workers_replaced"),
            (broken, "guard.worker_kept"),
            (versions[VERSION], "guard.workers_replaced"),
        ):
            before = noted(event)
            link.symlink_to(package)
            link.replace(current)
            guard.process.send_signal(signal.SIGUSR2)
            changed = partial(lambda name, count: noted(name) > count, event, before)
            wait_until(changed, event, START_SECONDS)
            seen.append(version_of(guard))
            load.wait_for(10)

    check(load, [guard])
    assert seen == [{VERSION}, {OTHER}, {OTHER}, {VERSION}]
