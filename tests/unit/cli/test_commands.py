"""The command line as a whole: groups, old spellings, exit codes."""

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.cli.outcome import Code

OLD = ["check", "test", "explain", "diff", "import-openapi", "schema", "replay", "bench", "eval"]
OLD += ["train", "approve"]


def run(*words):
    """Run the command line as its users do."""
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def paths(entries, path=()):
    """Yield the words of every command and group that is listed."""
    for name, (place, _) in entries.items():
        yield (*path, name)
        if isinstance(place, dict):
            yield from paths(place, (*path, name))


@pytest.mark.parametrize("words", list(paths(cli.COMMANDS)), ids=" ".join)
def test_every_command_has_help_under_its_name(words):
    """The table of commands names modules and functions that exist."""
    done = run(*words, "--help")

    assert (done.exit_code, done.stderr) == (0, "")
    assert f"Usage: guard {' '.join(words)} " in done.stdout


@pytest.mark.parametrize("name", OLD)
def test_every_old_spelling_is_the_command_under_its_old_name(name):
    """Scripts from before there were groups go on working; help does not list them."""
    old, new = run(name, "--help"), run(*cli.ALIASES[name], "--help")

    assert (old.exit_code, old.stderr) == (0, "")
    assert f"Usage: guard {name} " in old.stdout
    assert old.stdout.splitlines()[3:] == new.stdout.splitlines()[3:]
    assert not any(line.startswith(f"  {name} ") for line in run("--help").stdout.splitlines())


def test_operators_commands_find_the_running_guard_in_one_way(tmp_path):
    """Without `--redis` they look for a guard of this user, and say so where none runs."""
    for words in (
        ("tools", "list"),
        ("memory", "list"),
        ("memory", "review"),
        ("approvals", "grant", "0" * 32),
    ):
        done = CliRunner().invoke(cli.app, words, env={"XDG_STATE_HOME": str(tmp_path)})

        assert done.exit_code == 3
        assert "no guard of this user runs" in done.stderr


@pytest.mark.parametrize("words", [("lab",), ("lab", "eval"), ("bench", "proxy"), ("train", "x")])
def test_without_the_lab_its_commands_say_how_to_install_it(monkeypatch, words):
    """The lab is a distribution of its own, found by its entry point."""
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    done = run(*words, "--help")

    assert done.exit_code == Code.INVALID
    assert "pip install agent-egress-guard-lab" in done.stderr
