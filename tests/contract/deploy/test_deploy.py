"""What deploy/ starts: files that exist, options the guard has, and one way out only."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from guard.policy import load_policies
from guard.settings import load_settings

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="module")
def compose():
    """Return the compose file."""
    return YAML(typ="safe").load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_the_command_of_the_container_is_one_the_guard_understands(compose):
    """Every option is a setting with a valid value, and the policy is mounted and loads."""
    written = compose["services"]["guard"]["command"]
    command = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in written]
    given = dict(zip(command[1::2], command[2::2], strict=True))
    mounts = dict(v.split(":")[:2][::-1] for v in compose["services"]["guard"]["volumes"])

    settings = load_settings(
        None,
        policy=[Path(given["--policy"])],
        reverse=[given["--reverse"]],
        redis=given["--redis"],
        admin=given["--admin"],
        audit=Path(given["--audit"]),
        label_key=Path(given["--label-key"]),
    )

    assert command[0] == "run"
    assert settings.listeners[0].upstream == "http://tools:8000"
    folder, name = given["--policy"].rsplit("/", 1)
    assert load_policies([DEPLOY / mounts[folder] / name]).rules
    assert str(Path(given["--audit"]).parent) in mounts


def test_every_file_that_is_mounted_or_built_from_exists(compose):
    """Docker would make an empty directory of a file that is not there."""
    sources = [
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
    ]
    files = [source for source in sources if source.startswith(".")]

    assert len(files) >= 6
    assert [source for source in files if not (DEPLOY / source).exists()] == []
    assert {source for source in sources if not source.startswith(".")} == set(compose["volumes"])
    build = compose["services"]["guard"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_the_guard_is_the_only_way_from_agents_to_tools(compose):
    """No other service is on either network, and neither network leads outside."""
    members = {
        network: {name for name, s in compose["services"].items() if network in s["networks"]}
        for network in compose["networks"]
    }

    assert members["agents"] == members["tools"] == {"guard"}
    assert members["state"] == {"guard", "redis"}
    for name in ("agents", "tools", "state", "watch"):
        assert compose["networks"][name]["internal"] is True
    assert "guard" not in members["desk"]


def test_no_container_has_more_rights_than_it_needs(compose):
    """Capabilities are dropped, privileges cannot be gained, images are pinned."""
    for service in compose["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert re.search(r":(v?\d+\.\d+[\w.-]*|local)$", service["image"])
        assert not {"privileged", "cap_add", "devices"} & set(service)
    assert compose["services"]["guard"]["read_only"] is True
    # The guard refuses a Redis that may evict.
    assert compose["services"]["redis"]["command"][-2:] == ["--maxmemory-policy", "noeviction"]


@pytest.mark.programs("promtool")
def test_prometheus_accepts_its_configuration_with_the_rules(tmp_path):
    """Promtool checks the file and every rule file that it names."""
    shutil.copy(DEPLOY / "prometheus.yml", tmp_path)
    shutil.copytree(ROOT / "grafana" / "alerts", tmp_path / "rules")

    ran = subprocess.run(
        ["promtool", "check", "config", tmp_path / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 rule files found" in ran.stdout


def test_the_image_is_built_from_what_is_locked_and_does_not_run_as_root():
    """Every file that is copied exists and is let through; every install is by hash or offline."""
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    copied = [
        word
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    installs = [part for line in lines for part in line.split("&&") if "pip install" in part]

    assert {"guard", "policies", "models", "requirements/image.txt"} <= set(copied)
    assert [source for source in copied if not (ROOT / source).exists()] == []
    for source in copied:
        assert f"!{source}" in allowed or (
            source.startswith("requirements/") and "!requirements/*.txt" in allowed
        )
    assert len(installs) == 3
    for install in installs:
        assert "--no-build-isolation" in install
        assert "--require-hashes" in install or "--no-deps" in install
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001:10001"]
    assert lines.index("USER 10001:10001") > max(
        number for number, line in enumerate(lines) if line.startswith("FROM ")
    )


@pytest.mark.programs("systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path):
    """An unknown directive would be ignored in silence, and with it what it protects from."""
    unit = tmp_path / "guard.service"
    text = (DEPLOY / "guard.service").read_text(encoding="utf-8")
    # It must name a program that exists here.
    unit.write_text(text.replace("/usr/local/bin/guard", shutil.which("true")), encoding="utf-8")

    ran = subprocess.run(
        ["systemd-analyze", "verify", unit],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )

    assert ran.returncode == 0
    assert "guard.service" not in ran.stderr
