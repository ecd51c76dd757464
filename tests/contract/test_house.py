"""The house itself: sizes, names, import direction, and docs that keep up with the code."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path for top in ("guard", "lab") for path in (ROOT / top).rglob("*.py"))
DOCS = ROOT / "docs"
UNIT = ROOT / "tests" / "unit"


def relative(path):
    """Name a file from the repository's root."""
    return path.relative_to(ROOT).as_posix()


def tracked_text_files():
    """Return the files git tracks that people write, or everything outside .venv without git."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    names = [name for name in listed.stdout.split("\0") if name]
    suffixes = {".py", ".md", ".toml", ".yaml", ".yml", ".lua", ".txt", ".json", ".sh", ""}
    return [ROOT / n for n in names if Path(n).suffix in suffixes and (ROOT / n).is_file()]


def words_in(text):
    """Return the words that stand in backticks."""
    pieces = re.findall(r"`([^`\n]+)`", text)
    return {word for piece in pieces for word in re.findall(r"[\w.-]+", piece)}


def parsed(paths, words):
    """Yield each file that has one of the words in its text, with its syntax tree."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if any(word in text for word in words):
            yield path, ast.parse(text)


def test_unit_tests_lie_where_the_code_lies():
    """Each folder of unit tests has the name and place of the folder that it tests."""
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")} - {Path()}
    assert len(folders) > 10
    found = [f for f in folders if not any((ROOT / top / f).is_dir() for top in ("", "guard"))]

    assert found == []


SLEEPS = {"time.sleep", "asyncio.sleep", "anyio.sleep", "sleep"}


def sleeps_in(node, *, polls=False):
    """Yield the calls below a node that wait for a time and are not part of a loop that polls."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) in SLEEPS and not polls:
            waits = inner.args and not (
                isinstance(inner.args[0], ast.Constant) and inner.args[0].value == 0
            )
            if waits:
                yield inner
        yield from sleeps_in(inner, polls=polls or isinstance(inner, ast.While))


def test_no_test_sleeps():
    """A test waits for a condition; only what imitates a slow server or client takes its time."""
    paths = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if not any(
            part == "node_modules" or part[0] == "." for part in path.relative_to(ROOT).parts
        )
    ]
    found = {
        f"{relative(path)}:{call.lineno}"
        for path, tree in parsed(paths, SLEEPS)
        for call in sleeps_in(tree)
    }

    assert found == set()


def imported_files():
    """Return which modules each module of the package names in an import, types included."""
    names = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in MODULES}
    modules = {name.removesuffix(".__init__"): path for name, path in names.items()}
    found = {}
    for module, path in modules.items():
        wanted = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= members & set(modules) or {node.module}
            elif isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
        found[module] = (wanted & set(modules)) - {module}
    return found


def test_no_modules_import_each_other_in_a_circle():
    """Two files that need each other are one file, or a third is missing; types count as well."""
    waiting = imported_files()
    while done := {module for module, wanted in waiting.items() if not wanted & set(waiting)}:
        waiting = {m: wanted for m, wanted in waiting.items() if m not in done}
    # What is left is in a circle, or imports one: take away what nobody in it imports.
    while free := set(waiting) - set().union(*waiting.values()):
        waiting = {m: wanted for m, wanted in waiting.items() if m not in free}

    assert sorted(waiting) == []


def test_nothing_names_the_machine_it_was_written_on():
    """Paths of one machine mean nothing on another and tell about their author."""
    pattern = re.compile(r"(?:(?<![\w./:-])|file://)/(?:home|Users|root|work|opt)/[\w.-]")
    offenders = [
        f"{relative(path)}:{number}"
        for path in tracked_text_files()
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]

    assert offenders == []


def test_locks_have_hashes_and_no_index():
    """A lock installs the same bytes from whichever index its user trusts."""
    for name in ("build", "runtime", "dev"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        pins = re.split(r"\n(?=[^\s#])", text.strip())

        assert pins
        assert all("==" in pin and "--hash=sha256:" in pin for pin in pins)
        assert "://" not in text
        assert "--index" not in text


def test_the_development_lock_holds_the_runtime_lock():
    """What is tested is what is shipped."""
    runtime, dev = (
        set(
            re.findall(
                r"^(\S+==[^\s;]+)",
                (ROOT / "requirements" / name).read_text(encoding="utf-8"),
                re.MULTILINE,
            )
        )
        for name in ("runtime.txt", "dev.txt")
    )

    assert runtime - dev == set()


def test_make_targets_named_in_documents_exist():
    """Whoever copies a command from a document must not be told that there is no such rule."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    documents = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    named = {
        target
        for path in documents
        for target in re.findall(
            r"(?:^|`)make ([a-z][a-z-]*)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }

    assert {"demo", "test", "check", "docs", "reference"} <= named
    assert named - targets == set()


def test_every_rule_type_is_documented():
    """docs/how-to/policies.md has a row for each rule type that discovery finds."""
    from guard.policy.rules import discover_rule_types

    documented = words_in((DOCS / "how-to" / "policies.md").read_text(encoding="utf-8"))

    assert {str(name) for name in discover_rule_types()} - documented == set()


def first_arguments(*names):
    """Yield the first argument of each call of a function by its name, and its module's texts."""
    for _, tree in parsed(MODULES, names):
        constants = {
            target.id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            if getattr(node.func, "id", getattr(node.func, "attr", "")) in names:
                yield node.args[0], constants


@cache
def refusal_codes():
    """Return every code that the source can give to an unreadable message."""
    codes = {
        getattr(first, "value", None) or constants.get(getattr(first, "id", ""))
        for first, constants in first_arguments("MessageError", "_refused")
    }
    return {"body_too_large", *(code for code in codes if isinstance(code, str))}


def test_every_refusal_code_is_a_metric_label():
    """A code outside the closed set would be counted as other, and be invisible."""
    from guard.core.metrics import REFUSAL_CODES

    assert refusal_codes() - set(REFUSAL_CODES) == set()


def reason_codes():
    """Return every code, or beginning of one, that the source can give to a reason."""
    found = first_arguments("Reason", "reason")
    return {text for first, constants in found for text in _texts(first, constants)}


def _texts(node, constants):
    """Yield the texts an expression can have: both sides of a choice, the start of an f-string."""
    if isinstance(node, ast.IfExp):
        yield from _texts(node.body, constants)
        yield from _texts(node.orelse, constants)
    elif isinstance(node, ast.Constant):
        yield node.value
    elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        yield node.values[0].value
    elif isinstance(node, ast.Name) and isinstance(constants.get(node.id), str):
        yield constants[node.id]


def test_every_reason_code_is_a_metric_label():
    """A code that neither its rule type nor the guard declares would be counted as other."""
    from guard.telemetry.metrics import reason_codes as declared_codes

    codes, declared = reason_codes(), declared_codes()

    assert {"no_policy", "tool_unmapped", "recall_before_send", "destination_"} <= codes
    unknown = {
        code
        for code in codes
        if not any(
            known == code or (code[-1] == "_" and known.startswith(code)) for known in declared
        )
    }
    assert unknown == set()


def anchors(text):
    """Return the anchors that a site makes of the headings of a page."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


def test_links_between_documents_lead_somewhere():
    """A relative link names a file that exists, and a heading in it."""
    broken = []
    for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]:
        text = path.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", text):
            found = (path.parent / target) if target else path
            if not found.exists() or (
                anchor and anchor not in anchors(found.read_text(encoding="utf-8"))
            ):
                broken.append(f"{relative(path)} -> {target}#{anchor}")

    assert broken == []


def distribution(text):
    """Return the name of a distribution, as an index knows it."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", text)[0]).lower()


def packages_imported(path):
    """Yield the top-level names that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("offline", [False, True], ids=["guard", "lab"])
def test_what_is_imported_is_asked_for_by_name(offline):
    """A package that another one happens to bring along may not come with its next version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # What an extra brings is imported where it is used, and nowhere at the top of a served module.
    extras = project["optional-dependencies"].items()
    extra = [text for name, texts in extras if name not in {"dev", "build"} for text in texts]
    if offline:
        lab = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))
        extra += lab["project"]["dependencies"]
    asked = {distribution(text) for text in (*project["dependencies"], *extra)}
    brought = importlib.metadata.packages_distributions()
    ours = (p for p in MODULES if not relative(p).startswith("guard/extensions/frameworks/"))
    paths = (p for p in ours if relative(p).startswith("lab/") is offline)
    used = {name for path in paths for name in packages_imported(path)}
    outside = used - sys.stdlib_module_names - {"guard", "lab"}

    assert outside >= {"numpy", "pydantic"}
    assert {n for n in outside if asked.isdisjoint(map(distribution, brought[n]))} == set()
