"""Parts of a replay: whose structure counts, what a call writes, and where."""

from types import SimpleNamespace

import pytest

from guard.core.jsonpath import compile_path
from guard.core.mappings import PartitionMapping, StructureMapping
from guard.core.model import Integrity
from guard.extensions.graph_memory.ledger import Change, Writer
from guard.pipeline.selection_replay import changes_of, counts, partition_keys


@pytest.mark.parametrize(
    ("principals", "sources", "label", "expected"),
    [
        ((), (), Integrity.ADVISORY, True),
        (("ann",), ("user_input",), Integrity.ADVISORY, True),
        (("bob",), (), Integrity.ADVISORY, False),
        ((), ("tool_result",), Integrity.ADVISORY, False),
        ((), (), Integrity.TRUSTED, False),
    ],
)
def test_structure_counts_by_writer_source_and_label(principals, sources, label, expected):
    """Each that the policy names must hold."""
    selection = SimpleNamespace(principals=principals, sources=sources, label=label)
    writer = Writer("ann", source="user_input", label=Integrity.ADVISORY)
    assert counts(selection, writer) is expected


@pytest.mark.parametrize(
    ("tool", "arguments", "found"),
    [
        (
            "relate",
            {"r": [{"a": "x", "b": ["y", "z"], "w": 2}]},
            [("x", "y", 2.0), ("x", "z", 2.0)],
        ),
        ("relate", {"r": [{"a": "x", "b": "y"}]}, [("x", "y", 1.0)]),
        ("relate", {"r": [{"a": 7, "b": "y"}, "odd"]}, []),
        ("other", {"r": [{"a": "x", "b": "y"}]}, []),
    ],
)
def test_a_call_writes_an_edge_for_each_pair_of_names(tool, arguments, found):
    """What is no name is none; another tool writes nothing."""
    each = compile_path("$.r[*]")
    mapping = StructureMapping("relate".__eq__, "edge", each, one="a", two="b", weight="w")
    writes = changes_of([mapping], tool, arguments, Writer("ann"))
    assert [(w.one, w.two, w.weight) for w in writes if w.change is Change.EDGE] == found


@pytest.mark.parametrize(
    ("tool", "arguments", "keys"),
    [
        ("x", {"g": "main"}, None),
        ("read", {"g": "Main "}, {"main"}),
        ("read", {"g": ["a", "b"]}, {"a", "b"}),
        ("read", {"g": 7}, set()),
        ("read", {}, set()),
        ("read", {"g": "---"}, set()),
        ("whole", {"g": "main"}, set()),
    ],
)
def test_a_call_names_partitions_or_every_one(tool, arguments, keys):
    """A missing or odd name means all of them."""
    mappings = [
        PartitionMapping("read".__eq__, compile_path("$.g")),
        PartitionMapping("whole".__eq__, None),
    ]
    assert partition_keys(mappings, tool, arguments) == keys
