"""The command line: one thin file per group of commands, imported when one of them is called.

Exit codes: 0 ok, 1 failed, 2 blocked or failed test, 3 invalid policy or input.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
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

ENTRY_POINTS: Final = "guard.commands"
"""Entry point group of command groups that other distributions bring."""


@dataclass(frozen=True, slots=True)
class Separate:
    """A group of commands from another distribution, loaded if that is installed."""

    distribution: str

    def load(self, name: str) -> tuple[dict[str, tuple[CommandSource, str]], str]:
        """Return the commands of the group, and the package of their modules.

        Raises:
            InputError: the distribution is not installed.
        """
        for point in entry_points(group=ENTRY_POINTS, name=name):
            return point.load(), point.module
        raise InputError(
            f"`guard {name}` is not installed, add it: pip install {self.distribution}"
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
        Separate("agent-egress-guard-lab"),
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


class LazyCommands(Mapping[str, Any]):
    """The commands of a group by name, each imported when it is asked for and not before."""

    def __init__(
        self,
        entries: Mapping[str, tuple[CommandSource, str]],
        aliases: Mapping[str, tuple[str, ...]] | None = None,
        *,
        package: str = __name__,
    ) -> None:
        self.entries = entries
        self.package = package
        self.aliases = aliases or {}

    def __getitem__(self, name: str) -> Any:
        """Return a command, whose name is the one that it was called by.

        Raises:
            KeyError: there is none of that name.
        """
        path = self.aliases.get(name, (name,))
        source, help_line = self.entries[path[0]]
        package = self.package
        if isinstance(source, Separate):
            source, package = source.load(path[0])
        if isinstance(source, dict):
            group = LazyCommands(source, package=package)
            command: Any = LazyGroup(group, name=path[0], help=help_line)
        else:
            command = _imported(source, package)
        for word in path[1:]:
            command = command.commands[word]
        command.name, command.hidden = name, name in self.aliases
        return command

    def outline(self, name: str) -> TyperCommand | None:
        """Return what help and completion show of a command, without importing it."""
        if name in self.aliases:
            return TyperCommand(name, hidden=True)
        return TyperCommand(name, help=self.entries[name][1]) if name in self.entries else None

    def __iter__(self) -> Iterator[str]:
        """Yield the names in the order of help, old spellings last."""
        yield from self.entries
        yield from self.aliases

    def __len__(self) -> int:
        """Return how many names there are."""
        return len(self.entries) + len(self.aliases)


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


class LazyGroup(TyperGroup):
    """A group that imports a command only to call it."""

    def __init__(self, commands: LazyCommands, **options: Any) -> None:
        super().__init__(no_args_is_help=True, rich_markup_mode=None, **options)
        self.lazy = commands
        self.commands = commands  # type: ignore[assignment]  # never changed

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of help."""
        del ctx
        return list(self.lazy)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the outline of a command: enough to list and complete it."""
        del ctx
        return self.lazy.outline(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is called, imported, and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.lazy[name], rest


class Root(LazyGroup):
    """All commands; what stops one becomes an exit code and one line on standard error."""

    def __init__(self, **options: Any) -> None:
        del options["commands"], options["no_args_is_help"], options["rich_markup_mode"]
        super().__init__(LazyCommands(COMMANDS, ALIASES), **options)

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
