"""The house itself: sizes, names, import direction, and docs that keep up with the code."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from grimp import build_graph

from guard.core.metrics import REFUSAL_CODES
from guard.telemetry.metrics import reason_codes

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


def parsed(paths, words):
    """Yield the syntax tree of each file that has one of the words in its text."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if any(word in text for word in words):
            yield ast.parse(text)


def test_unit_tests_lie_where_the_code_lies():
    """Each folder of unit tests has the name and place of the folder that it tests."""
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")} - {Path()}
    assert len(folders) > 10
    found = [f for f in folders if not any((ROOT / top / f).is_dir() for top in ("", "guard"))]

    assert found == []


POLL = re.compile(r"\bwhile .*:.*\n(?:.*\n){0,4}?\s+(?:await )?\w+\.sleep\(.*\)")
SLEEP = re.compile(r"^\s*(?:await )?(?:time\.|asyncio\.|anyio\.)?sleep\((?!0\))", re.MULTILINE)


def test_no_test_sleeps():
    """A test waits for a condition; only what imitates a slow server or client takes its time."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in tracked_text_files()
        if path.name.startswith("test_")
    }

    assert len(texts) > 100
    assert [relative(path) for path in texts if SLEEP.search(POLL.sub("", texts[path]))] == []


@cache
def imports():
    """Return what each module of both packages imports, types and other packages included."""
    graph = build_graph("guard", "lab", include_external_packages=True, cache_dir=None)
    return {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}


def test_no_modules_import_each_other_in_a_circle():
    """Two files that need each other are one file, or a third is missing; types count as well."""
    assert len(tuple(TopologicalSorter(imports()).static_order())) > 300


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


def codes_given(*names):
    """Return every code, or part of one, that the source gives first to functions of some names."""
    found = set()
    for tree in parsed(MODULES, names):
        constants = {
            target.id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
        for call in calls:
            if getattr(call.func, "id", getattr(call.func, "attr", "")) in names:
                pieces = list(ast.walk(call.args[0]))
                found |= {one.value for one in pieces if isinstance(one, ast.Constant)}
                found |= {constants.get(one.id) for one in pieces if isinstance(one, ast.Name)}
    return {text for text in found if isinstance(text, str) and text}


@pytest.mark.parametrize(
    ("names", "declared", "some"),
    [
        (("MessageError", "_refused"), set(REFUSAL_CODES), {"bad_json", "duplicate_key"}),
        (
            ("Reason", "reason"),
            set(reason_codes()),
            {"no_policy", "tool_unmapped", "recall_before_send", "destination_"},
        ),
    ],
    ids=["refusals", "reasons"],
)
def test_every_code_is_a_metric_label(names, declared, some):
    """A code outside the closed set would be counted as other, and be invisible."""
    codes = codes_given(*names)

    assert some <= codes
    unknown = {
        code
        for code in codes - declared
        if "_" not in code[:1] + code[-1:] or not any(code in known for known in declared)
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
    top = "lab" if offline else "guard"
    used = {
        name.partition(".")[0]
        for module, names in imports().items()
        for name in names
        if module.partition(".")[0] == top and not module.startswith("guard.extensions.frameworks.")
    }
    outside = used - sys.stdlib_module_names - {"guard", "lab"}

    assert outside >= {"numpy", "pydantic"}
    assert {n for n in outside if asked.isdisjoint(map(distribution, brought[n]))} == set()
