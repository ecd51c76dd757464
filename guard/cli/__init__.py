"""The command line: one thin file per group of commands, imported when one of them is called.

Exit codes: 0 ok, 1 failed, 2 blocked or failed test, 3 invalid policy or input.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from guard.cli.outcome import exit_code, message
from guard.core import VERSION
from guard.core.errors import GuardError, InputError

_application: Final = partial(typer.Typer, add_completion=False, pretty_exceptions_enable=False)

_GROUP: Final[dict[str, Any]] = {"no_args_is_help": True, "rich_markup_mode": None}
ENTRY_POINTS: Final = "guard.commands"
"""Entry point group of command groups that other distributions bring."""


@dataclass(frozen=True, slots=True)
class Separate:
    """A group of commands from another distribution, loaded if that is installed."""

    name: str
    distribution: str

    def load(self) -> tuple[dict[str, tuple[CommandSource, str]], str]:
        """Return the commands of the group, and the package of their modules.

        Raises:
            InputError: the distribution is not installed.
        """
        for point in entry_points(group=ENTRY_POINTS, name=self.name):
            return point.load(), point.module
        raise InputError(
            f"`guard {self.name}` is not installed, add it: pip install {self.distribution}"
        )


CommandSource = str | dict[str, tuple["CommandSource", str]] | Separate
"""``module:attribute`` in the package, or the commands of a group; each has a line of help."""

COMMANDS: Final[dict[str, tuple[CommandSource, str]]] = {
    "run": ("run:run", "Stand between agents and their tools until SIGTERM."),
    "decide": ("run:decide", "Judge the calls of an Envoy that stands in front."),
    "console": ("run:console", "Serve the console, for guards that run elsewhere."),
    "stdio": ("agents:stdio", "Wrap an MCP server that speaks on standard input and output."),
    "hook": ("agents:hook", "Judge a prompt, call or result of a coding agent."),
    "federate": ("agents:federate", "Serve one MCP endpoint in front of several listeners."),
    "prompt": ("agents:prompt", "Report a prompt of a person to a running guard."),
    "init": ("init:init", "Write a first policy with its tests, from the tools an agent has."),
    "learn": ("traces:learn", "Propose policy from recorded runs, with counts, as a diff."),
    "doctor": ("doctor:doctor", "Check that everything is in place, and say what to do."),
    "demo": ("demo:demo", "Watch an attack being refused while everyday mail goes through."),
    "policy": (
        {
            "check": ("policy:check", "Validate policy files: file, line, rule and a suggestion."),
            "test": ("policy:run_tests", "Run the tests beside the policies."),
            "explain": ("policy:explain", "Say why, for a described or for a recorded call."),
            "diff": ("policy:diff", "List every recorded call that two policies decide otherwise."),
            "schema": ("policy:schema", "Print the JSON schema of policies, or a reference."),
            "migrate": ("policy:migrate", "Rewrite removed fields, with comments kept."),
            "import-openapi": ("policy:import_openapi", "Propose HTTP tools from an OpenAPI file."),
            "list": ("policy:list_shipped", "List the policies that ship with the guard."),
            "show": ("policy:show_shipped", "Print one of them."),
        },
        "Policies: check, test, explain, compare.",
    ),
    "policies": (
        {
            "list": ("policy:list_shipped", "List the policies that ship with the guard."),
            "show": ("policy:show_shipped", "Print one of them."),
        },
        "The policies that ship with the guard: list, show.",
    ),
    "approvals": (
        {
            "grant": ("approvals:grant", "Release one call that waits for a human, once."),
            "show": ("approvals:show", "Show who asks for what, and where it would go."),
            "list": ("approvals:list_approvals", "List the questions that wait."),
            "deny": ("approvals:deny", "Refuse a call that waits."),
            "resume": ("approvals:resume", "End the pause of a principal that asked too often."),
        },
        "Calls that were refused with `approval_required`.",
    ),
    "grants": (
        {
            "list": ("approvals:list_grants", "List every remembered answer."),
            "revoke": ("approvals:revoke", "Revoke one of them."),
        },
        "Remembered answers of people: list, revoke.",
    ),
    "memory": ("memory:app", "Memory: writes that were held back, labels, lineage, trust."),
    "incident": ("incident:app", "A poisoned memory item: what it reached, contain it, undo."),
    "detectors": ("detectors:app", "Text classifiers for `result` rules: add, list, remove."),
    "tools": ("tools:app", "Tool definitions: what is pinned, what has changed."),
    "audit": ("audit:app", "The audit log: verify, follow, summarise, export it."),
    "keys": ("keys:app", "Keys of labels, audit log and recordings: list, rotate, retire."),
    "erase": ("keys:erase", "Erase a principal or session from audit log and recordings."),
    "traces": (
        {
            "replay": ("traces:replay", "Judge recorded runs as live traffic would be."),
            "from-recording": (
                "traces:from_recording",
                "Make runs of what `guard run --record` kept.",
            ),
        },
        "Recorded runs of agents.",
    ),
    "ca": ("keys:ca", "The authority of forward listeners: show it, and make clients trust it."),
    "lab": (
        Separate("lab", "agent-egress-guard-lab"),
        "Offline work: benchmarks, evaluations, training (a package of its own).",
    ),
    "version": ("version", "Print the version."),
}

ALIASES: Final = {
    "check": ("policy", "check"),
    "test": ("policy", "test"),
    "explain": ("policy", "explain"),
    "diff": ("policy", "diff"),
    "schema": ("policy", "schema"),
    "import-openapi": ("policy", "import-openapi"),
    "approve": ("approvals", "grant"),
    "replay": ("traces", "replay"),
    "bench": ("lab", "bench"),
    "eval": ("lab", "eval"),
    "train": ("lab", "train", "runs"),
}
"""Spellings from before there were groups: they work as ever, and help does not list them."""


class Later(TyperCommand):
    """A command or group that is imported only to be called; help shows its line.

    Args:
        name: name by which it is called.
        source: where it is.
        help_line: line of help.
        package: package of its modules.
        words: further words of the command that an alias stands for.
    """

    def __init__(
        self,
        name: str,
        source: CommandSource,
        help_line: str,
        *,
        package: str = __name__,
        words: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        super().__init__(name, help=help_line, **options)
        self._source, self._package, self._words = source, package, words

    def load(self) -> Any:
        """Return it, imported, under the name that it was called by."""
        source, package = self._source, self._package
        if isinstance(source, Separate):
            source, package = source.load()
        if isinstance(source, dict):
            command: Any = TyperGroup(commands=_commands(source, package), help=self.help, **_GROUP)
        else:
            command = _imported(source, package)
        for word in self._words:
            command = loaded(command.commands[word])
        command.name, command.hidden = self.name, self.hidden
        return command

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Return the context of the imported command."""
        return self.load().make_context(*arguments, **options)


def loaded(command: Any) -> Any:
    """Return a command of a group, imported."""
    return command.load() if isinstance(command, Later) else command


def _commands(entries: Mapping[str, tuple[CommandSource, str]], package: str) -> dict[str, Any]:
    return {name: Later(name, *entry, package=package) for name, entry in entries.items()}


def _imported(source: str, package: str) -> Any:
    module, _, attribute = source.rpartition(":")
    found = getattr(
        importlib.import_module(f"{package}.{module}" if module else package), attribute
    )
    if not isinstance(found, typer.Typer):
        single = _application()
        single.command()(found)
        found = single
    # Plain help: brackets in it are brackets, and nothing is imported to draw frames.
    found.rich_markup_mode = None
    return typer.main.get_command(found)


class Root(TyperGroup):
    """All commands; what stops one becomes an exit code and one line on standard error."""

    def __init__(self, **options: Any) -> None:
        commands = _commands(COMMANDS, __name__)
        for name, (first, *words) in ALIASES.items():
            source, help_line = COMMANDS[first]
            commands[name] = Later(name, source, help_line, words=tuple(words), hidden=True)
        super().__init__(**{**options, **_GROUP, "commands": commands})

    def invoke(self, ctx: Any) -> Any:
        """Call a command.

        Raises:
            typer.Exit: the command failed, and has said why.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of the output has enough; Typer ends the command quietly.
            raise
        except (GuardError, OSError) as error:
            typer.echo(message(error, f"guard {ctx.invoked_subcommand}"), err=True)
            raise typer.Exit(exit_code(error)) from error


app = typer.Typer(
    cls=Root,
    name="guard",
    help="An inline egress guard for LLM agents: every tool call is judged before a byte leaves.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def version() -> None:
    """Print the version."""
    typer.echo(VERSION)


def _version(value: bool) -> None:
    if value:
        version()
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
