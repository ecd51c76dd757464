"""``guard doctor``: each check can fail, says what to do, and sets the exit code."""

import json
import socket
import ssl
from pathlib import Path

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.credentials.authority import ensure_authority
from guard.runtime import doctor_checks as checks
from guard.runtime.doctor_checks import Status
from guard.settings import load_settings
from guard.store.embedded import EmbeddedRedis

ROOT = Path(__file__).parents[3]


def by_name(found):
    """Return the outcomes by name."""
    return {one.name: one for one in found}


@pytest.fixture
def listening():
    """Return a socket that listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


def test_a_sound_machine_exits_with_0(monkeypatch):
    """One object with every check, none failed."""
    policy = str(ROOT / "policies" / "default.yaml")
    result = CliRunner().invoke(
        cli.app, ["doctor", "-p", policy, "--admin", "127.0.0.1:0", "--json"]
    )
    report = json.loads(result.stdout)

    assert (result.exit_code, report["ok"]) == (0, True)
    found = {check["name"]: check["status"] for check in report["checks"]}
    assert found["policy"] == found["models"] == found["redis"] == found["clock"] == "ok"
    assert found["direct egress"] == "skip"


def test_an_open_way_around_fails(listening):
    """What can be reached directly is a hole, with what closes it."""
    address = f"127.0.0.1:{listening[1]}"
    result = CliRunner().invoke(cli.app, ["doctor", "--admin", "127.0.0.1:0", "--direct", address])

    assert result.exit_code == 1
    assert f"fail  direct egress {address}: open" in result.stdout
    assert "deploy/network" in result.stdout


def test_a_broken_policy_a_watching_one_and_missing_models_are_told_apart(tmp_path):
    """A policy that blocks nothing is a warning; an altered artefact is not used."""
    (tmp_path / "bad.yaml").write_text("version: 2\n", "utf-8")
    observe = ROOT / "policies" / "examples" / "observe.yaml"
    for files, status in (
        ([tmp_path / "bad.yaml"], Status.FAIL),
        ([observe], Status.WARN),
        ([], Status.SKIP),
    ):
        assert checks.check_policy(files).status is status
    assert checks.check_models(tmp_path).status is Status.FAIL


async def test_redis_that_evicts_or_is_gone_fails(tmp_path):
    """A forgotten window is a hole in the rules about order."""
    gone = load_settings(None, redis=f"unix://{tmp_path / 'none.sock'}")
    assert by_name(await checks.check_redis(gone))["redis"].status is Status.FAIL
    with EmbeddedRedis() as redis:
        found = by_name(await checks.check_redis(load_settings(None, redis=redis.url)))

    assert found["redis"].status is Status.OK
    assert found["clock"].status is Status.OK


def test_the_authority_must_exist_and_be_trusted(tmp_path):
    """A variable that names a file without it is why clients fail."""
    assert by_name(checks.check_authority(tmp_path / "none", {}))["ca"].status is Status.FAIL

    authority = ensure_authority(tmp_path / "ca")
    assert by_name(checks.check_authority(tmp_path / "ca", {}))["ca"].status is Status.OK
    assert by_name(checks.check_authority(tmp_path / "ca", {}))["ca trust"].status is Status.WARN

    joined = tmp_path / "joined.pem"
    other = ssl.PEM_cert_to_DER_cert(authority.certificate.read_text("ascii"))[:-1] + b"x"
    joined.write_text(ssl.DER_cert_to_PEM_cert(other), "ascii")
    wrong = by_name(checks.check_authority(tmp_path / "ca", {"SSL_CERT_FILE": str(joined)}))
    assert wrong["ca trust"].status is Status.FAIL

    joined.write_text(joined.read_text("ascii") + authority.certificate.read_text("ascii"), "ascii")
    right = by_name(checks.check_authority(tmp_path / "ca", {"SSL_CERT_FILE": str(joined)}))
    assert right["ca trust"].status is Status.OK


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, None),
        ({"reverse": ["127.0.0.1:9001=http://127.0.0.1:9"]}, Status.WARN),
        (
            {
                "reverse": ["127.0.0.1:9001=http://127.0.0.1:9"],
                "credentials": Path("clients.toml"),
            },
            Status.OK,
        ),
    ],
)
def test_authenticated_principals_are_recommended(options, status):
    """Clients that share a principal share the trust that one of them has lost."""
    found = checks.check_principals(load_settings(None, **options))

    assert [one.status for one in found] == ([status] if status else [])
