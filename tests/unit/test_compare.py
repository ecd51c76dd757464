"""What ``make compare`` computes: ratios with intervals, and the size of the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.interleaved import Ratio
from tests.compare import excludes_loss, import_circles, size

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package with two modules that import each other, one of them for types only."""
    package = tmp_path / "guard"
    package.mkdir()
    (package / "__init__.py").write_text('"""A package."""\n', "utf-8")
    (package / "one.py").write_text("from guard.two import B\n\nA = B\n", "utf-8")
    lazy = '"""Two\nlines."""\nif TYPE_CHECKING:\n    from guard import one\nB = 1\n'
    (package / "two.py").write_text(lazy, "utf-8")
    (package / "three.py").write_text("import guard.two\n", "utf-8")
    return tmp_path


def test_a_loss_is_less_throughput_or_more_time() -> None:
    """The interval's worse end decides."""
    assert excludes_loss("requests/s", Ratio(0.99, 0.975, 1.2))
    assert not excludes_loss("requests/s", Ratio(0.99, 0.96, 1.2))
    assert excludes_loss("p50 ms", Ratio(0.99, 0.9, 1.02))
    assert not excludes_loss("p50 ms", Ratio(0.99, 0.9, 1.04))


def test_imports_of_types_close_a_circle_too(tree: Path) -> None:
    """Who reads one file of a circle has to read the others."""
    assert import_circles(tree) == [["guard.one", "guard.two"]]


def test_the_size_of_a_tree(tree: Path) -> None:
    """Files, lengths, logical lines, docstrings, loose modules, circles."""
    assert size(tree) == {
        "files": 4,
        "lines of a file, median": 2,
        "lines of a file, 90th percentile": pytest.approx(4.4),
        "logical lines": 8,
        "docstring lines": 3,
        "loose modules": 3,
        "import circles": 1,
        "files in circles": 2,
    }
