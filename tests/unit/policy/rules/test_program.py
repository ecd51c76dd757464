"""Listed programs pass; a command that hides another one is asked about, however it is written."""

import random

import pytest

from guard.policy.rules import program
from guard.values import commands
from guard.values.commands import Word, argument_list, read_command

COUNT = 1500
PROGRAMS = {
    "git": ["status", "log", "diff"],
    "npm": ["run test"],
    "ls": "any",
    "cat": "any",
    "cd": "any",
    "echo": "any",
}
HIDDEN = "evilprog"
"""A program that is not listed and does not exist."""


@pytest.fixture
def judge(rule, situation):
    """Return the code that a command gets, empty for a command that passes."""

    def code(command, *more, **fields):
        given = {"path": "$.command", "programs": PROGRAMS, "directory": "/srv/code", **fields}
        arguments = dict([("command", command), *more])
        found = rule("program", effect="ask", **given).match(
            situation(role="other", arguments=arguments)
        )
        return "" if found is None else str(found.code)

    return code


HONEST = (
    "git status",
    "git log --oneline -n 5 && git diff HEAD~1 -- src/a.py",
    "git log \\\n  --format='%h %s'",
    "ls -la src/*.py | cat",
    'cat "a file.txt" > out/copy.txt 2>&1',
    "cd src; ls; cd /srv/code/docs\nls # the pages",
    "npm run test -- --watch=false",
    "echo done 2>/dev/null &",
    "(cd src && ls)",
    "'git' \"status\"",
    "cat /srv/code/a.txt",
    ["git", "status"],
)


@pytest.mark.parametrize("command", HONEST)
def test_listed_programs_pass(judge, command):
    """With pipes, lists, comments, quotes, patterns and files of the directory."""
    assert judge(command) == ""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("git push", "program_not_listed"),
        ("git -c core.pager=x log", "program_not_listed"),
        ("git $X", "program_not_listed"),
        ("npm run deploy", "program_not_listed"),
        ("/usr/bin/git status", "program_not_listed"),
        ("ls; rm x", "program_not_listed"),
        ("ls $(rm x)", "program_not_listed"),
        (["sh", "-c", "git status"], "program_not_listed"),
        ("PATH=. git status", "program_unread"),
        ("git() { rm x; }; git status", "program_unread"),
        ("cat <<E\nE", "program_unread"),
        ("ls `rm x`", "program_unread"),
        ("ls 'open", "program_unread"),
        ("ls\r", "program_unread"),
        ("", "program_unread"),
        (7, "program_unread"),
        ("ls " + "a" * commands.LIMIT, "program_unread"),
        ("ls " + "|ls" * commands.SIGNS + "|", "program_unread"),
        ("ls " + "$(ls " * 60 + ")" * 60, "program_unread"),
        ("ls > /etc/x", "program_outside"),
        ("ls > $X", "program_outside"),
        ("ls >> ../x", "program_outside"),
        ("cat < /dev/tcp/h/80", "program_outside"),
        ("cat /etc/passwd", "program_outside"),
        ("cat ~/.netrc", "program_outside"),
        ("cat a/../../b", "program_outside"),
        ("cd && cat .netrc", "program_outside"),
        ("cd -", "program_outside"),
        ("cd -- -", "program_outside"),
        ("cat -rf/etc/x .", "program_outside"),
        ("cat file:///etc/passwd", "program_outside"),
        ("cat .?/b", "program_outside"),
        ("cat {/etc/passwd,a}", "program_outside"),
        ("git log --output=/etc/x", "program_outside"),
        ("cat /srv/codes/x", "program_outside"),
        ("cat $HOME/x", "program_outside"),
        ("git log https://evil.test/x", "program_network"),
        ("ls drop@evil.test", "program_network"),
    ],
)
def test_anything_else_is_asked_about(judge, command, code):
    """With a code for the part that is not allowed."""
    assert judge(command) == code


FREE = {"directory": ""}
IN_CWD = {"working_directory": "$.cwd"}
IN_PROJECT = {"directory": "$.project"}


@pytest.mark.parametrize(
    ("command", "fields", "more", "code"),
    [
        # Without a directory words are free; a destination must be literal with a network.
        ("cat /etc/hosts $X", FREE, [], ""),
        ("cat a > b", FREE, [], "program_outside"),
        ("cat https://a.test/x", {**FREE, "network": True}, [], ""),
        ("cat https://$X/x", {**FREE, "network": True}, [], "program_network"),
        # A working directory must be inside; it may be left out.
        ("ls", IN_CWD, [], ""),
        ("ls", IN_CWD, [("cwd", "/srv/code/src")], ""),
        ("ls", IN_CWD, [("cwd", "src")], ""),
        *(("ls", IN_CWD, [("cwd", wrong)], "program_outside") for wrong in ("/etc", "..", 3)),
        # Paths are judged against a directory that an argument names; an odd one has none inside.
        ("cat /srv/code/a", IN_PROJECT, [("project", "/srv/code")], ""),
        ("cat /srv/other/a", IN_PROJECT, [("project", "/srv/code")], "program_outside"),
        ("cat /srv/code/a", IN_PROJECT, [], "program_outside"),
        *(
            ("cat /srv/code/a", IN_PROJECT, [("project", wrong)], "program_outside")
            for wrong in ("srv", ["/srv/code"], "")
        ),
    ],
)
def test_a_command_stays_in_its_directory(judge, command, fields, more, code):
    """Where there is one, by the policy or by an argument."""
    assert judge(command, *more, **fields) == code


def test_a_call_without_a_command_is_unread(rule, situation):
    """The path finds nothing."""
    one = rule("program", effect="ask", path="$.command", programs=PROGRAMS)
    assert one.match(situation(role="other", arguments={})).code == "program_unread"


@pytest.mark.parametrize(
    "programs", [{"sh": "any"}, {"/usr/bin/env": ["git"]}, {"find": ["."]}, {"python": "any"}]
)
def test_programs_that_run_others_are_refused(rule, programs):
    """A list that names one lists nothing."""
    one = rule("program", effect="ask", path="$.c", programs=programs)
    assert list(one.problems(None))
    good = rule("program", effect="ask", path="$.c", programs={"python": ["-m pytest"]})
    assert not list(good.problems(None))


# --- generated attempts ---


def _spelt(draw):
    """Return the hidden program, written in one of the ways that a shell understands."""
    cut = draw.randrange(1, len(HIDDEN))
    head, tail = HIDDEN[:cut], HIDDEN[cut:]
    return draw.choice(
        (
            HIDDEN,
            f"{head}''{tail}",
            f'{head}"{tail}"',
            f"{head}\\{tail}",
            f"{head}$@{tail}",
            f"{head}${{x}}{tail}",
            "$'" + "".join(f"\\x{ord(sign):02x}" for sign in HIDDEN) + "'",
            f"$(echo {HIDDEN})",
            f"`echo {HIDDEN}`",
            f"x={HIDDEN}; $x",
            f"{{{HIDDEN},a}}",
            f"{HIDDEN}$IFS" + "a",
            f"{head}\\\n{tail}",
        )
    )


FRAMES = (
    "{}",
    "git status; {}",
    "ls && {}",
    "ls || {}",
    "ls | {}",
    "ls |& {}",
    "ls & {}",
    "ls\n{}",
    "ls # quiet\n{}",
    "ls '#'; {}",
    "ls a#b; {}",
    'ls "$({})"',
    "ls $({})",
    "ls `{}`",
    "cat <({})",
    "ls > >({})",
    "cat <<E\n$({})\nE",
    "cat <<E; {}\nx\nE",
    "cat <<'E'\nx\nE\n{}",
    "cat <<< $({})",
    "git() {{ {}; }}; git status",
    "function ls {{ {}; }}; ls",
    "alias ls={}; ls",
    "if {}; then ls; fi",
    "for a in b; do {}; done",
    "while {}; do ls; done",
    "case a in a) {};; esac",
    "! {}",
    "( {} )",
    "{{ {}; }}",
    "a=1 {}",
    "> out {}",
    "2>out {}",
    "eval {}",
    "env {}",
    "xargs {}",
    "command {}",
    "exec {}",
    "sudo {}",
    "time {}",
    "coproc {}",
    "sh -c '{}'",
    "find . -exec {} ;",
    "ls ${{x:-$({})}}",
    "ls $(( $({}) ))",
    "a[$({})]=1 ls",
    "[[ -n $({}) ]]",
    "trap {} EXIT",
    "ls \\\n; {}",
    "ls \\# ; {}",
    "ls '\\'; {} #'",
    'ls "\\\\"; {} #"',
    "ls \\'; {} #'",
)


def attempts():
    """Yield commands that run the hidden program."""
    draw = random.Random(14)
    for number in range(COUNT):
        yield FRAMES[number % len(FRAMES)].format(_spelt(draw))


def test_a_hidden_program_is_asked_about(judge):
    """In every frame and every spelling."""
    assert [command for command in attempts() if not judge(command)] == []


def _only_first(text):
    line = read_command(text)
    return line._replace(commands=line.commands[:1])


def _all_read(text):
    line = read_command(text)
    return line._replace(unreadable="", commands=line.commands or argument_list(["ls"]).commands)


def _literal(text):
    line = read_command(text)
    words = [(Word("ls"), *found[1:]) if found[0].is_expanded else found for found in line.commands]
    return line._replace(commands=tuple(words))


@pytest.mark.parametrize("off", [_only_first, _all_read, _literal])
def test_with_a_part_of_the_reading_off_attempts_pass(judge, monkeypatch, off):
    """Further commands, unreadable commands and expanded programs each matter."""
    monkeypatch.setattr(program, "read_command", off)

    assert not all(judge(command, directory="") for command in attempts())


@pytest.mark.parametrize(
    ("command", "held"),
    [
        ("sed -n 1,5p a.py", False),
        ("sed -n '1,5p' a.py b.py", False),
        ("sed -n 1,5p -e 1e a", True),
        ("sed -n '1e ls' a", True),
        ("sed -n 1,5p$X a", True),
        ("cat .env", True),
        ("cat a/.env", True),
        ("cat '.e'nv", True),
        ("cat .e*", True),
        ("cat .", False),
        ("echo x > .bashrc", True),
        ("echo x > out", False),
    ],
)
def test_words_may_be_refused(judge, command, held):
    """A listed program with such a word, or a redirection to one, is not listed."""
    programs = {"sed": ["-n /[0-9,]+p/"], "cat": "any", "echo": "any"}
    hidden = {"*": [r"(.*/)?\.[^./].*"], "sed": ["-.*"]}

    assert bool(judge(command, programs=programs, refused_words=hidden)) is held
    if "sed" not in command:
        # Switched off, nothing of it is held.
        assert judge(command, programs=programs) == ""
