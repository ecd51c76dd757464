"""``make compare BASE=COMMIT``: speed and size of the code at two commits, side by side.

Each commit is checked out into a git worktree of its own and run by this Python with its packages,
so that only the code differs.  Speed: the benchmarks run in pairs whose order alternates, and each
figure is the median over the pairs of the ratio new / base, with a 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from radon.raw import analyze
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from guard.adapters.redis.embedded import find_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
PAIRS: Final = 11
RESAMPLES: Final = 10_000
LOSS: Final = 0.03
"""The loss that an interval must exclude."""
_NO_MODULES: Final = {"__init__", "__main__"}


class Bench(NamedTuple):
    """One benchmark and what is read from its JSON report."""

    words: tuple[str, ...]
    figures: dict[str, Callable[[dict[str, Any]], float]]


class Ratio(NamedTuple):
    """New / base: the median over pairs and its 95 % interval."""

    value: float
    low: float
    high: float


def _check(identifier: str) -> Callable[[dict[str, Any]], float]:
    return lambda report: next(c["value"] for c in report["checks"] if c["id"] == identifier)


BENCHES: Final = (
    Bench(
        ("proxy", "--rounds", "1", "--seconds", "2"),
        {
            "proxy requests/s": lambda report: median(report["details"]["rounds"]["guard"]),
            "proxy decision p50 ms": _check("decision_p50_ms"),
        },
    ),
    Bench(
        ("provenance", "--rounds", "0", "--values", "20000", "--calls", "1000"),
        {"provenance decision p50 ms": _check("decision_p50_ms")},
    ),
)


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Give a commit's files in a temporary git worktree."""
    with tempfile.TemporaryDirectory(prefix="guard-compare-") as directory:
        tree = Path(directory, "tree")
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


@contextmanager
def redis_on_path() -> Iterator[str]:
    """Give a PATH on which every commit finds the same Redis server."""
    with tempfile.TemporaryDirectory(prefix="guard-compare-") as directory:
        Path(directory, "redis-server").symlink_to(find_server())
        yield f"{directory}:{os.environ['PATH']}"


def measure(tree: Path, search: str) -> dict[str, float]:
    """Run the benchmarks of a tree and return their figures.

    Args:
        tree: the commit's files.
        search: the PATH.

    Raises:
        CalledProcessError: a benchmark failed, or the code that ran is not the tree's.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree), "PATH": search}
    mine = f"import guard; assert guard.__file__.startswith({str(tree)!r}), guard.__file__"
    subprocess.run([sys.executable, "-c", mine], cwd=tree, env=environment, check=True)
    found = {}
    for bench in BENCHES:
        command = [sys.executable, "-m", "guard", "bench", *bench.words, "--json"]
        done = subprocess.run(
            command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True
        )
        report = json.loads(done.stdout)
        found |= {name: float(read(report)) for name, read in bench.figures.items()}
    return found


def ratio(base: list[float], new: list[float]) -> Ratio:
    """Return the median ratio of pairs and the bootstrap interval of that median."""
    ratios = np.asarray(new) / np.asarray(base)
    drawn = np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return Ratio(float(np.median(ratios)), float(low), float(high))


def excludes_loss(name: str, found: Ratio) -> bool:
    """Return whether the interval of a figure excludes a loss of more than ``LOSS``."""
    return found.high <= 1 + LOSS if name.endswith(" ms") else found.low >= 1 - LOSS


def size(tree: Path) -> dict[str, float]:
    """Return how much code ``guard/`` has and how it is laid out."""
    sources = {path: path.read_text(encoding="utf-8") for path in (tree / "guard").rglob("*.py")}
    lengths = [len(text.splitlines()) for text in sources.values()]
    circles = import_circles(tree)
    return {
        "files": len(sources),
        "lines of a file, median": median(lengths),
        "lines of a file, 90th percentile": float(np.percentile(lengths, 90)),
        "logical lines": sum(analyze(text).lloc for text in sources.values()),
        "docstring lines": sum(_docstring_lines(text) for text in sources.values()),
        "loose modules": sum(
            path.stem not in _NO_MODULES for path in (tree / "guard").glob("*.py")
        ),
        "import circles": len(circles),
        "files in circles": sum(map(len, circles)),
    }


def import_circles(tree: Path) -> list[list[str]]:
    """Return the groups of files that import each other in a circle, imports of types included."""
    modules = {}
    for path in sorted((tree / "guard").rglob("*.py")):
        parts = path.relative_to(tree).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    names = {name: number for number, name in enumerate(modules)}
    edges = {
        (names[name], names[other])
        for name, path in modules.items()
        for other in _imports(path.read_text(encoding="utf-8"), names)
    }
    rows, columns = zip(*edges, strict=True) if edges else ((), ())
    graph = coo_array((np.ones(len(edges)), (rows, columns)), shape=(len(names), len(names)))
    count, labels = connected_components(graph, connection="strong")
    groups = [[n for n in names if labels[names[n]] == label] for label in range(count)]
    return [group for group in groups if len(group) > 1]


def _imports(text: str, names: dict[str, int]) -> Iterator[str]:
    """Give the modules of the package that a text imports, wherever the import stands."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            wanted = [m if m in names else str(node.module) for m in members]
        else:
            continue
        yield from (name for name in wanted if name in names)


def _docstring_lines(text: str) -> int:
    """Count the lines of docstrings, those under constants and fields included."""
    return sum(
        node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and node.end_lineno is not None
    )


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """Compare and print; return 1 where a loss cannot be excluded."""
    parser = argparse.ArgumentParser(prog="make compare", description=__doc__)
    parser.add_argument("base")
    parser.add_argument("--new", default="HEAD", help="commit to judge (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="0 counts code only")
    options = parser.parse_args()
    measured: dict[str, list[dict[str, float]]] = {"base": [], "new": []}
    with (
        checked_out(options.base) as base,
        checked_out(options.new) as new,
        redis_on_path() as search,
    ):
        trees = {"base": base, "new": new}
        sizes = {side: size(tree) for side, tree in trees.items()}
        print(f"{'':36}{_git('rev-parse', '--short', options.base):>10}", end="")
        print(f"{_git('rev-parse', '--short', options.new):>10}")
        for name, before in sizes["base"].items():
            print(f"{name:36}{before:10g}{sizes['new'][name]:10g}", flush=True)
        for pair in range(options.pairs):
            for side in ("base", "new") if pair % 2 == 0 else ("new", "base"):
                measured[side].append(measure(trees[side], search))
            print(f"pair {pair + 1} of {options.pairs}", file=sys.stderr, flush=True)
    good = True
    for name in measured["base"][0] if measured["base"] else ():
        sides = {side: [run[name] for run in runs] for side, runs in measured.items()}
        found = ratio(sides["base"], sides["new"])
        held = excludes_loss(name, found)
        good &= held
        print(
            f"{name:36}{median(sides['base']):10.4g}{median(sides['new']):10.4g}"
            f"  ratio {found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
            f"  {'no loss above' if held else 'cannot exclude a loss above'} {LOSS:.0%}"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
