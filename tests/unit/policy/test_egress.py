"""The ``egress`` part of policies: closed where nothing is said, united over files."""

from guard.core.model import Destination
from guard.policy import load_policies

RULES = "rules:\n  - {id: a, type: tool, roles: [other], effect: allow}\n"


def load(tmp_path, *parts):
    """Return the egress limits of files with these parts."""
    paths = []
    for number, part in enumerate(parts):
        path = tmp_path / f"{number}.yaml"
        rules = RULES if number == 0 else ""
        path.write_text(f"version: 1\nname: p{number}\n{part}{rules}", encoding="utf-8")
        paths.append(path)
    return load_policies(paths).egress


def host(name):
    """Return a host destination."""
    return Destination("host", name, name)


def test_without_a_word_only_web_ports_are_open(tmp_path):
    """No private host, no pass-through."""
    limits = load(tmp_path, "")

    assert limits.ports == {80, 443}
    assert not limits.may_be_private(host("localhost"))
    assert not limits.passes_through(host("localhost"))


def test_files_are_united(tmp_path):
    """What one of them opens is open."""
    limits = load(
        tmp_path,
        "egress: {ports: [443], private: [db.internal]}\n",
        "egress: {ports: [8443], passthrough: ['*.pinned.example']}\n",
    )

    assert limits.ports == {443, 8443}
    assert limits.may_be_private(host("db.internal"))
    assert limits.passes_through(host("a.pinned.example"))
    assert not limits.passes_through(host("pinned.example"))
