"""``guard policy check``: exit codes and where the words go."""

from pathlib import Path

from typer.testing import CliRunner

from guard import cli

ROOT = Path(__file__).parents[3]


def test_a_valid_policy_exits_with_0_and_says_what_it_has():
    """The counts are on standard output."""
    result = CliRunner().invoke(
        cli.app, ["policy", "check", str(ROOT / "policies" / "default.yaml")]
    )

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("OK default: ")
    assert "mode enforce" in result.stdout


def test_an_invalid_policy_exits_with_3_and_names_every_problem(tmp_path):
    """Each problem is one line on standard error, with file and line."""
    path = tmp_path / "bad.yaml"
    path.write_text("version: 1\nname: x\nrule: []\n", encoding="utf-8")

    result = CliRunner().invoke(cli.app, ["policy", "check", str(path)])

    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.splitlines() == [
        f"{path}:3: unknown field `rule`; did you mean `rules`?",
        "1 problem",
    ]


def test_a_missing_file_exits_with_3(tmp_path):
    """It is invalid input, not a crash."""
    assert (
        CliRunner().invoke(cli.app, ["policy", "check", str(tmp_path / "none.yaml")]).exit_code == 3
    )
