"""The tables of the paper beside our own figures.

What the seed text lost is None.  The paper's harm is of an answer that a model gives, ours of the
first item: the figures stand beside each other, they are not the same quantity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json

PAPER: Final[dict[str, dict[str, Json]]] = {
    "table_1": {
        "ppr": {"reliance": 0.24, "evictability": None, "channel": "opens"},
        "node_distance": {"reliance": 0.63, "evictability": 0.0, "channel": "immune"},
        "rrf": {"reliance": 0.0, "evictability": 0.0, "channel": "immune"},
    },
    "table_2_blind": {
        "ppr_hotpotqa_400q": {"n": 228, "blind": 21},
        "ppr_musique_150q": {"n": 54, "blind": 24},
        "ppr_2wiki": {"n": 34, "blind": 7},
        "ppr_locomo": {"n": None, "blind": None},
        "leiden": {"n": 38, "blind": 27},
        "rrf": {"n": 8, "blind": 0},
        "node_distance": {"n": 28, "blind": 0},
        "gold_agnostic": {"n": 228, "blind": 15},
    },
    "table_3_harm": {
        "inject_only": {"none": 0.2115, "justification_ifc": 0.1538, "ours": 0.0, "blind": 0},
        "merge_link": {"none": 0.0192, "justification_ifc": 0.0192, "ours": 0.0, "blind": 0},
        "edge_write": {"none": 0.0064, "justification_ifc": 0.0064, "ours": 0.0, "blind": 0},
        "collusion": {"none": 0.0321, "justification_ifc": 0.0321, "ours": 0.0, "blind": 1},
        "oracle": {"none": 0.0897, "justification_ifc": 0.0897, "ours": 0.0, "blind": 8},
    },
    "table_6_harm_by_label_recall": {
        "0.6": 0.035, "0.8": 0.025, "0.9": 0.018, "0.95": 0.016, "1.0": 0.0,
    },
    "table_7": {
        "text": {"labels_min_over_block": 0.865, "labels_max_harm": 0.0577, "ours": 0.0},
        "structure": {"labels_min_over_block": 1.0, "labels_max_harm": 0.0128, "ours": 0.0},
        "adaptive": {"labels_min_over_block": 1.0, "labels_max_harm": 0.0385, "ours": 0.0},
    },
}  # fmt: skip
"""What the seed text still says."""


def paper_comparison(details: Mapping[str, Any]) -> dict[str, Json]:
    """Return each row of the paper's tables as ``{"paper": …, "ours": …}``.

    Args:
        details: of the bench: arms by memory, communities, pools, reliance, recall of labels.
    """
    ours: dict[str, dict[str, Json]] = {
        "table_1": {name: _table_1(details, name) for name in PAPER["table_1"]},
        "table_2_blind": _table_2(details),
        "table_3_harm": {name: _table_3(details, name) for name in PAPER["table_3_harm"]},
        "table_6_harm_by_label_recall": {
            recall: found[0] for recall, found in details["label_recall"].items()
        },
        "table_7": {name: _table_7(details, name) for name in PAPER["table_7"]},
    }
    return {
        table: {
            row: {"paper": PAPER[table].get(row), "ours": ours[table].get(row)}
            for row in dict.fromkeys([*PAPER[table], *ours[table]])
        }
        for table in PAPER
    }


def _table_1(details: Mapping[str, Any], name: str) -> Json:
    """Reliance: share of the first five that content alone would not have returned."""
    arm = details["locomo"].get("oracle") if name == "ppr" else details.get(name)
    if not arm or not arm["n"]:
        return None
    harmed = arm["blind"] if name == "ppr" else arm["harm"]
    opens = name == "ppr" or arm["outsiders"] > 0
    return {
        "reliance": details["reliance"].get("pagerank" if name == "ppr" else name),
        "evictability": arm["evicted_from_top_5"] / arm["n"],
        "channel": ("opens" if opens else "reorders its pool") if harmed else "immune",
        "first_item_changes": harmed / arm["n"],
    }


def _table_2(details: Mapping[str, Any]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for row, memory, arm in (
        ("ppr_locomo", "locomo", "oracle"),
        ("ppr_2wiki", "2wiki", "oracle"),
        ("gold_agnostic", "locomo", "agnostic"),
    ):
        if table := details[memory].get(arm):
            found[row] = {"n": table["n"], "blind": table["blind"]}
    for row in ("rrf", "node_distance"):
        found[row] = {"n": details[row]["n"], "blind": details[row]["evicted_from_top_5"]}
    leiden = details["leiden"]
    if leiden["n"]:
        found["leiden"] = {"n": leiden["n"], "blind": leiden["harm"] * leiden["n"]}
    return found


def _table_3(details: Mapping[str, Any], name: str) -> Json:
    arm = details["locomo"].get(name)
    if not arm:
        return None
    harm = {one: arm["harm"][one] for one in ("none", "justification_ifc", "ours")}
    return {**harm, "blind": arm["blind"]}


def _table_7(details: Mapping[str, Any], name: str) -> Json:
    arm = details["locomo"].get(f"launder_{name}")
    if not arm:
        return None
    return {
        "labels_min_over_block": arm["asked_though_right"]["node_labels_min"],
        "labels_max_harm": arm["harm"]["node_labels_max"],
        "ours": arm["harm"]["ours"],
    }
