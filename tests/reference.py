"""Pages of the documentation that are made from code and data: ``python -m tests.reference``.

A test compares them with the files in docs/, so that no page describes another version.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from unittest.mock import MagicMock

import typer
from ruamel.yaml import YAML

import guard
from guard.cli import app, loaded
from guard.cli.outcome import Code
from guard.console.app import Console
from guard.console.routes import openapi
from guard.core import metrics
from guard.core.metrics import REFUSAL_CODES, STAGES, Counter, Histogram, Metric
from guard.operations.deployment import ConsoleMetrics
from guard.policy.json_schema import policy_schema, schema_text
from guard.policy.rules import RuleConfig, discover_rule_types
from guard.settings import Settings
from guard.telemetry.audit_log import AuditLogFile
from guard.telemetry.metrics import reason_codes
from lab.cli import COMMANDS as LAB_COMMANDS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TECHNIQUES = ROOT / "tests" / "techniques.yaml"
COMPLIANCE = DOCS / "evidence" / "compliance.yaml"
NOTE = "<!-- Made by `make reference`; edit the source that it names. -->\n"
SET_BY_SUPERVISOR = frozenset({"owner", "restarts", "pulse", "sockets"})


def load(path):
    """Return a YAML file of the repository."""
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def codes():
    """Return the meanings of codes and fields."""
    return load(DOCS / "reference" / "codes.yaml")


def table(head, rows):
    """Return a Markdown table."""
    lines = [list(head), ["---"] * len(list(head)), *([*row] for row in rows)]
    return "\n".join(f"| {' | '.join(cell(one) for one in line)} |" for line in lines) + "\n"


def cell(text):
    """Return a text that fits into one cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def sentence(text):
    """Return a text with a capital and without markup of docstrings."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`"))
    return text if text.startswith("http") else text[:1].upper() + text[1:]


def page(title, *parts):
    """Return a generated page."""
    return f"{NOTE}# {title}\n\n" + "\n".join(parts)


# -- Policies ----------------------------------------------------------------------------------


def policy_page():
    """Return the page of the policy language, from its schema."""
    schema = policy_schema()
    models = {n: one for n, one in schema["$defs"].items() if "properties" in one}
    rules = {kind.__name__: name for name, kind in discover_rule_types().items()}
    shared = models["ToolRule"]["properties"]
    shared = {name: shared[name] for name in RuleConfig.model_fields}
    common = {"description": inspect.getdoc(RuleConfig), "properties": shared}
    sections = {"A policy file": schema}
    sections |= {f"`{name}`": one for name, one in models.items() if name not in rules}
    sections |= {"What all rules share": common}
    sections |= {f"Rule `{rules[name]}`": models[name] for name in rules}
    parts = ["Fields without a default are required. See [policies](../how-to/policies.md).\n"]
    for title, model in sections.items():
        kept = {
            name: field
            for name, field in model["properties"].items()
            if not field.get("deprecated")
            and (not title.startswith("Rule") or (name != "type" and field != shared.get(name)))
        }
        rows = [
            (
                f"`{name}`",
                type_in_words(field, schema["$defs"]),
                f"`{json.dumps(field['default'])}`" if "default" in field else "",
                field.get("description", "").replace("``", "`"),
            )
            for name, field in kept.items()
        ]
        parts.append(f"## {title}\n\n{model.get('description', '').replace('``', '`').strip()}\n")
        if rows:
            parts.append(table(("field", "type", "default", "meaning"), rows))
    return page("Policy reference", *parts)


def type_in_words(field, models):
    """Return the type of a field of a JSON schema in words."""
    name = field.get("$ref", "").rpartition("/")[2]
    field = {**field, **models.get(name, {})}
    if "enum" in field or "const" in field:
        return ", ".join(f"`{one}`" for one in field.get("enum", [field.get("const")]))
    if name:
        return f"`{name}`"
    if options := field.get("anyOf", field.get("oneOf")):
        parts = dict.fromkeys(type_in_words(part, models) for part in options)
        return " or ".join(part for part in parts if part != "null")
    if field.get("type") == "array":
        return f"list of {type_in_words(field.get('items', {}), models)}"
    return str(field.get("type", "any")).replace("string", "text").replace("object", "mapping")


# -- Command line ------------------------------------------------------------------------------


def commands(command, path="guard"):
    """Yield each command with its words, groups as well."""
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        if not one.hidden:
            yield from commands(loaded(one), f"{path} {name}")


def cli_page():
    """Return the page of commands."""
    parts = [
        "Every command has `--help`. `guard lab` is a package of its own.\n",
        (
            "Commands that act on a running guard find the one of this user. Elsewhere they need "
            "`--redis` or `GUARD_REDIS`, and `--label-key` where the guard has one.\n"
        ),
        (
            "The spellings from before there were groups (`guard check`, `guard replay`, "
            "`guard approve`) still work. `--install-completion` completes commands in your "
            "shell.\n"
        ),
    ]
    root = typer.main.get_command(app)
    for path, command in commands(root):
        if path == "guard" or path.startswith("guard lab"):
            continue
        text = sentence(inspect.cleandoc(command.help or "").replace("\b", "").strip())
        text = re.split(r"\n\s*(?:Args|Raises|Returns):", text)[0]
        level = "##" if path.count(" ") == 1 else "###"
        parts.append(f"{level} `{path}`\n\n{text}\n")
        if hasattr(command, "commands"):
            continue
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        if arguments:
            names = ", ".join(f"`{p.metavar or p.name.upper()}`" for p in arguments)
            parts.append(f"Arguments: {names}\n")
        options = [p for p in command.params if p.param_type_name == "option"]
        if rows := [option(p) for p in options if p.name != "help"]:
            parts.append(table(("option", "meaning", "default"), rows))
    rows = [(f"`guard lab {name}`", what[1]) for name, what in LAB_COMMANDS.items()]
    parts += ["## `guard lab`\n", table(("command", "meaning"), rows)]
    return page("Commands", *parts)


def option(param):
    """Return the row of an option."""
    names = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
    default = param.default
    shown = ""
    if isinstance(param.show_default, str):
        shown = param.show_default
    elif default not in (None, "", False, (), []) and not callable(default):
        shown = f"`{default}`"
    return names, sentence(param.help or ""), shown


# -- Settings ----------------------------------------------------------------------------------


def _attribute_texts(model):
    """Yield the text that stands under each field in the source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(model)))
    except (OSError, TypeError):
        return
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    for field, text in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield field.target.id, " ".join(str(text.value.value).split())


def settings_page():
    """Return the page of settings."""
    texts = {}
    for base in reversed(Settings.__mro__):
        if hasattr(base, "model_fields"):
            texts |= dict(_attribute_texts(base))
    texts |= codes()["settings"]
    rows = []
    for name, info in sorted(Settings.model_fields.items()):
        if name in SET_BY_SUPERVISOR:
            continue
        default = info.get_default(call_default_factory=True)
        shown = json.dumps(default, default=str) if default not in (None, "", []) else ""
        rows.append((f"`{name}`", f"`{shown}`" if shown else "", sentence(texts.get(name, ""))))
    return page(
        "Settings",
        "Each setting is an option of `guard run` (`queue_timeout` is `--queue-timeout`), a "
        "variable `GUARD_*`, or a key of the TOML file of `--config`. The first that names "
        "it wins. Decisions are never a setting: they are policy.\n",
        table(("setting", "default", "meaning"), rows),
        "`owner`, `restarts`, `pulse` and `sockets` are set by the supervisor for its workers.\n",
    )


# -- Metrics, codes, audit lines ---------------------------------------------------------------


def declared_metrics():
    """Return the metrics that the guard declares."""
    return [one for one in vars(metrics).values() if isinstance(one, Metric)]


def label_text(metric):
    """Return the labels of a metric, with their values where these are few."""
    found = []
    for label in metric.labels:
        values = sorted(label.values or ())
        few = f": {', '.join(values)}" if 0 < len(values) <= 16 else ""
        found.append(f"`{label.name}`{few}")
    return "; ".join(found)


def metrics_page():
    """Return the page of metrics."""
    notes = {name: f" {sentence(text)}." for name, text in codes()["metrics"].items()}
    kinds = {Counter: "counter", Histogram: "histogram"}
    rows = [
        (
            f"`{one.name}`",
            kinds.get(type(one), "gauge"),
            label_text(one),
            one.help + notes.get(one.name, ""),
        )
        for one in declared_metrics()
    ]
    console = []
    for family in ConsoleMetrics().registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = sorted({key for sample in family.samples for key in sample.labels} - {"le"})
        shown = ", ".join(f"`{label}`" for label in labels)
        meaning = family.documentation + notes.get(name, "")
        console.append((f"`{name}`", family.type, shown, meaning))
    return page(
        "Metrics",
        "`--admin HOST:PORT` serves `/metrics` (Prometheus), `/healthz` (the process lives) and "
        "`/readyz` (it can judge calls). A label never takes a value that a client chose. "
        "[Alerts](../how-to/monitoring.md#alerts) use these metrics.\n",
        table(("metric", "type", "labels", "meaning"), rows),
        "Linux adds `guard_process_cpu_seconds_total`, `guard_process_resident_memory_bytes`, "
        "`guard_process_virtual_memory_bytes`, `guard_process_open_fds`, `guard_process_max_fds` "
        "and `guard_process_start_time_seconds` of the worker.\n",
        "## The console\n",
        "The console has a scrape of its own: `/metrics` at its address, for the secret of a "
        "person with the role `viewer`.\n",
        table(("metric", "type", "labels", "meaning"), console),
    )


def reasons_page():
    """Return the page of reason and refusal codes."""
    texts = codes()

    def rows(names, kind):
        return [(f"`{name}`", sentence(texts[kind].get(name, "?"))) for name in sorted(names)]

    return page(
        "Reasons and refusals",
        "## Reason codes\n",
        "Each reason of a verdict has a code, the id of its rule, an action and a detail.\n",
        table(("code", "meaning"), rows(reason_codes(), "reasons")),
        "## Refusal codes\n",
        "The guard refuses these messages before they are calls: they have more than one reading, "
        "or may not be sent at all. No byte of them reached the upstream, or the agent for an "
        "answer.\n",
        table(("code", "meaning"), rows(REFUSAL_CODES, "refusals")),
        "## Stages of errors\n",
        "Label `stage` of `guard_errors_total` and `guard_fail_closed`: "
        + ", ".join(f"`{one}`" for one in STAGES)
        + ".\n",
    )


def audit_page():
    """Return the page of audit lines."""
    texts = codes()
    return page(
        "Audit lines",
        "`--audit PATH` appends one JSON line per decision before the call is forwarded. A line "
        "that cannot be written blocks the call. Lines contain no argument text: destinations are "
        "keyed fingerprints, and paths are masked below the name of the argument. "
        "[Use the log](../how-to/audit-log.md).\n",
        "## Fields of a decision\n",
        table(
            ("field", "meaning"),
            ((f"`{k}`", sentence(v)) for k, v in texts["audit_fields"].items()),
        ),
        "## Events\n",
        table(("event", "meaning"), ((f"`{k}`", sentence(v)) for k, v in texts["events"].items())),
    )


def audit_fields():
    """Return the fields that the code writes into the line of a decision."""
    written = ast.parse(textwrap.dedent(inspect.getsource(AuditLogFile._decision_fields)))
    found = set()
    for node in ast.walk(written):
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
            found |= {key.value for key in node.value.keys}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(node.slice.value)
    return found


def exit_codes_page():
    """Return the page of exit codes."""
    rows = (
        (f"`{Code.OK}`", "Success"),
        (f"`{Code.FAILED}`", "The command failed"),
        (
            f"`{Code.REFUSED}`",
            "Blocked, a failed test, a flipped verdict, or a signature that does not fit",
        ),
        (f"`{Code.INVALID}`", "Invalid policy, setting or other input"),
    )
    return page(
        "Exit codes",
        table(("code", "meaning"), rows),
        "`guard stdio` ends with the exit code of the wrapped server.\n",
    )


# -- Interfaces --------------------------------------------------------------------------------


def api_page():
    """Return the page of the HTTP and Python interfaces."""
    document = openapi(Console(*(MagicMock() for _ in range(5)), ()).pages)
    rows = [
        (f"`{method.upper()} {path}`", str(what["x-role"]), sentence(what["summary"] or ""))
        for path, methods in document["paths"].items()
        for method, what in methods.items()
    ]
    public = [
        (f"`{name}`", sentence((inspect.getdoc(getattr(guard, name)) or "").split("\n\n")[0]))
        for name in guard.__all__
        if not name.startswith("__")
    ]
    return page(
        "Interfaces",
        "## Console\n",
        "Each page of the console is a resource. `Authorization: Bearer SECRET` carries the secret "
        "of a person. `/api/openapi.json` describes bodies and parameters.\n",
        table(("request", "role", "meaning"), rows),
        "## Admin port\n",
        table(
            ("request", "meaning"),
            (
                ("`GET /metrics`", "Metrics in the text format of Prometheus"),
                ("`GET /healthz`", "200 while the process lives"),
                ("`GET /readyz`", "200 while the guard can judge calls"),
                ("`POST /v1/prompts`", "Prompt of a user; needs a secret of `prompt_credentials`"),
            ),
        ),
        "## Python\n",
        "`guard.__all__` is the public interface; it follows semantic versioning.\n",
        table(("name", "meaning"), public),
    )


# -- Evidence ----------------------------------------------------------------------------------


def tests_of(entry):
    """Return the tests that an entry names."""
    return ", ".join(f"`{test.removeprefix('tests/')}`" for test in entry.get("tests", ()))


def bypass_page():
    """Return the page of attempts to get past the guard."""
    parts = [
        "Attempts against the guard and their outcome, from `tests/techniques.yaml`.\n",
        (
            "- **denied**: in enforce mode the upstream receives nothing, the client gets a "
            "refusal, and a counter grows.\n"
            "- **seen**: the guard recognises the attempt, and the policy decides.\n"
            "- **open**: the attempt works today. All open parts: [open risks](open-risks.md).\n"
        ),
    ]
    for section, entries in load(TECHNIQUES).items():
        rows = []
        for one in entries:
            example = f" ({one['example']})" if one.get("example") else ""
            line = [sentence(one.get("line", ""))] if one.get("line") else []
            line += [f"Open: {one['open']}"] if one.get("open") else []
            name = sentence(one["technique"] + example)
            rows.append((name, one["status"], ". ".join(line), tests_of(one)))
        parts += [f"## {section}\n", table(("technique", "status", "mechanism", "tests"), rows)]
    return page("Bypass resistance", *parts)


def open_risks_page():
    """Return the page of everything that works today."""
    parts = [
        (
            "These attempts work today, wholly or in part. Every line is an entry of "
            "[bypass resistance](bypass-resistance.md), where the tested part is.\n\n"
            "In short, the guard does not stop:\n\n"
            "- paraphrased text and private codings in a message to an allowed destination;\n"
            "- a destination that the user types or a person approves, whoever suggested it;\n"
            "- small covert channels: times, choices, a few bytes per message;\n"
            "- traffic and memory writes that never pass the guard;\n"
            "- a writer to Redis, to the keys or to the policy;\n"
            "- a wrong declaration, such as a directory that outsiders can write.\n"
        )
    ]
    for section, entries in load(TECHNIQUES).items():
        lines = [f"- **{sentence(e['technique'])}**: {e['open']}" for e in entries if e.get("open")]
        if lines:
            parts += [f"## {section}\n", "\n".join(lines) + "\n"]
    return page("Open risks", *parts)


def compliance_page():
    """Return the page of frameworks."""
    data = load(COMPLIANCE)
    parts = [
        "The table is `docs/evidence/compliance.yaml`; each row names a test that shows it.\n",
        (
            "- **covered**: the guard enforces it, and a test shows it.\n- **partly**: the guard "
            "enforces a part.\n- **out of scope**: another part of the deployment must do it.\n"
        ),
    ]
    for framework in data["frameworks"]:
        rows = [
            (f"{one['id']} {one['name']}", one["status"], one["how"], tests_of(one))
            for one in framework["rows"]
        ]
        parts += [
            f"## {framework['name']}\n",
            f"Source: {framework['source']}, read {framework['reviewed']}.\n",
            table(("item", "status", "mechanism or reason", "tests"), rows),
        ]
    return page("Compliance", *parts)


PAGES = {
    "docs/reference/policy.md": policy_page,
    "docs/reference/commands.md": cli_page,
    "docs/reference/settings.md": settings_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/reasons.md": reasons_page,
    "docs/reference/audit-lines.md": audit_page,
    "docs/reference/exit-codes.md": exit_codes_page,
    "docs/reference/api.md": api_page,
    "docs/evidence/bypass-resistance.md": bypass_page,
    "docs/evidence/open-risks.md": open_risks_page,
    "docs/evidence/compliance.md": compliance_page,
    "policies/schema.json": schema_text,
}
"""Generated files with the function that makes each."""


def main():
    """Write every generated file; return the exit code."""
    for name, make in PAGES.items():
        (ROOT / name).write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
