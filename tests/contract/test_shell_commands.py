"""Bash itself says which programs a command starts; the rule lets no other command pass."""

import json
import os
import random
import shutil
import subprocess

import pytest

from guard.policy.rules.program import ProgramRule

COUNT = int(os.environ.get("COUNT", "6000"))
SHELLS = int(os.environ.get("SHELLS", "150"))
HONEST = (
    "git status",
    "git log --oneline -n 5 && git diff HEAD~1 -- src/a.py",
    "git log \\\n  --format='%h %s'",
    "ls -la src/*.py | cat",
    'cat "a file.txt" > out/copy.txt 2>&1',
    "cd src; ls; cd docs\nls # the pages",
    'npm run test -- "x $(git log) y"',
    "ls $(git status) ${x} \\; <(ls a)",
    "echo done 2>/dev/null &",
    "(cd src && ls)",
    "'git' \"status\"",
)
RULE = ProgramRule.model_validate_json(
    json.dumps(
        {
            "id": "r",
            "type": "program",
            "effect": "ask",
            "path": "$.command",
            "programs": {
                "git": ["status", "log", "diff"],
                "npm": ["run test"],
                **dict.fromkeys(("ls", "cat", "cd", "echo"), "any"),
            },
        }
    )
)


def _codes(command):
    return {code for code, _ in RULE.findings({"command": command})}


TOKENS = (
    *("git", "status", "log", "ls", "npm", "run", "test", "evilprog", "x", "a b", "é"),
    *("'", '"', "\\", "$", "`", "#", "~", "*", "{", "}", ",", "(", ")", "$(", "<(", "${", "$'"),
    *(
        " ",
        " ",
        " ",
        " ",
        "\n",
        ";",
        "&",
        "|",
        "&&",
        "||",
        "<",
        ">",
        "<<",
        "<<<",
        ">&",
        "2>",
        "=",
        "!",
    ),
    *(
        "\t",
        "\\\n",
        "\u00a0",
        "\u2003",
        "[",
        "]",
        "-",
        "if",
        "then",
        "fi",
        "do",
        "done",
        "x=",
        "E\n",
    ),
)
CATCH = (
    "ulimit -u 200 -t 2; exec 9>&{fd}\n"
    "command_not_found_handle() {{ printf '\\x1f%s' \"$@\" >&9; printf '\\x1e' >&9; }}\n"
)


def _programs_run(command, folder):
    """Return the argument lists that Bash tries to start; its path is empty."""
    read, write = os.pipe()
    try:
        subprocess.run(
            [str(shutil.which("bash")), "-c", CATCH.format(fd=write) + command],
            env={"PATH": "/nonexistent"},
            cwd=folder,
            pass_fds=[write],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=5,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pass
    finally:
        os.close(write)
    with os.fdopen(read, "rb") as found:
        text = found.read().decode("utf-8", "replace")
    return [run.split("\x1f")[1:] for run in text.split("\x1e") if run]


@pytest.mark.skipif(shutil.which("bash") is None, reason="Bash is not installed")
def test_a_shell_runs_nothing_else_of_a_command_that_passes(tmp_path):
    """Random tokens in honest commands: Bash itself says which programs each would start."""
    draw = random.Random(41)
    passed = set()
    for _ in range(COUNT):
        command = draw.choice(HONEST)
        for _ in range(draw.randrange(1, 5)):
            cut = draw.randrange(len(command) + 1)
            rest = cut + draw.choice((0, 0, 1, 3))
            command = command[:cut] + draw.choice(TOKENS) + command[rest:]
        if not _codes(command):
            passed.add(command)
    chosen = draw.sample(sorted(passed), min(SHELLS, len(passed)))
    assert len(chosen) > SHELLS // 2
    for command in chosen:
        for run in _programs_run(command, tmp_path):
            assert _codes(run) <= {"program_outside"}, (command, run)
