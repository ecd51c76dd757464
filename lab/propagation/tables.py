"""The surrogate's tables beside the paper's, as Markdown, of the same run as its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lab.propagation.draws import code_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Spread = Mapping[str, float]

PERCENT: Final = 100
_TABLE_2: Final = (
    ("auc", 1),
    ("misbehaviour_before", PERCENT),
    ("misbehaviour_after", PERCENT),
    ("hops_before", 1),
    ("hops_after", 1),
)
_PLACES: Final = {1: 3, PERCENT: 1}
"""Decimals of a figure by what it is multiplied with."""


def surrogate_tables(found: Mapping[str, Any]) -> str:
    """Return the report of the surrogate as Markdown.

    Args:
        found: ``details.surrogate`` of the report.
    """
    main = found["main"]
    made = (
        f"{main['auc']['ours']['n']} draws of {found['items']:,} memories at 5 %, half of them "
        f"with an adversary who knows the signals (code {code_digest()[:12]}). Medians, and in "
        "brackets the 5th to 95th percentile of draws."
    )
    parts = [
        [made],
        _table_1(found),
        _table_2(found),
        _before_and_after(found),
        _arms(found),
        _terms(main),
        _rewriting(main),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _shown(spread: Spread, scale: int = 1) -> str:
    if not spread.get("n"):
        return "-"
    places = _PLACES[scale]
    low, middle, high = (f"{spread[name] * scale:.{places}f}" for name in ("p5", "median", "p95"))
    return f"{middle} [{low}, {high}]"


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _head(*names: str) -> list[str]:
    return [_row(names), "|" + "---|" * len(names)]


def _table_1(found: Mapping[str, Any]) -> list[str]:
    lines = _head(
        "detector", "AUC", "paper", "false positives, %", "paper", "hops after", "paper",
        "accuracy varies by ± %", "paper", "n",
    )  # fmt: skip
    for name, row in found["table_1"].items():
        paper = row["paper"] or (None,) * 4
        cells: list[object] = [name.replace("_", " ")]
        scales = (("auc", 1), ("false_positive_rate", PERCENT), ("hops_after", 1),
                  ("accuracy_fluctuation", PERCENT))  # fmt: skip
        for (column, scale), theirs in zip(scales, paper, strict=True):
            told = "" if theirs is None else f"{theirs * scale:g}"
            cells += [_shown(row[column], scale), told]
        lines.append(_row([*cells, row["auc"]["n"]]))
    return lines


def _table_2(found: Mapping[str, Any]) -> list[str]:
    lines = _head(
        "poison", "AUC, 5 seeds (95 %)", "paper", "misbehaviour before, %", "paper", "after, %",
        "paper", "hops before", "paper", "after", "paper",
    )  # fmt: skip
    for ratio, row in found["table_2"].items():
        cells: list[object] = [f"{float(ratio):.1%}"]
        theirs = found["paper_table_2"][ratio]
        for (name, scale), paper in zip(_TABLE_2, theirs, strict=True):
            here, places = row[name], _PLACES[scale]
            low, high = (f"{value * scale:.{places}f}" for value in here["interval"])
            mean, std = (f"{here[what] * scale:.{places}f}" for what in ("mean", "std"))
            cells += [f"{mean} ± {std} [{low}, {high}]", f"{paper * scale:g}"]
        lines.append(_row(cells))
    return lines


def _before_and_after(found: Mapping[str, Any]) -> list[str]:
    ours = found["main"]["ours"]
    whole = found.get("full_size", {}).get("ours", {})
    lines = _head("at 5 %", "before", "after", *(["full size: before", "after"] if whole else []))
    for name, scale in (
        ("misbehaviour", PERCENT), ("hops", 1), ("coverage", PERCENT), ("success", PERCENT),
    ):  # fmt: skip
        cells = [_shown(ours[f"{name}_{when}"], scale) for when in ("before", "after")]
        if whole:
            cells += [
                f"{whole[f'{name}_{when}'] * scale:.{_PLACES[scale]}f}"
                for when in ("before", "after")
            ]
        lines.append(_row([f"{name}{', %' if scale == PERCENT else ''}", *cells]))
    told = [f"{name} {_shown(ours[name])}" for name in ("precision", "recall")]
    if whole:
        items, auc = found["full_size"]["items"], found["full_size"]["auc"]
        each = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in auc.items())
        told.append(
            f"at full size ({items:,} memories) {each}; precision {whole['precision']:.2f}, recall "
            f"{whole['recall']:.2f}, false positives {whole['false_positive_rate']:.1%}"
        )
    return [*lines, "", f"Ours: {'; '.join(told)}."]


def _arms(found: Mapping[str, Any]) -> list[str]:
    lines = _head("AUC of ours", "", "n")
    groups = {
        "an adversary who knows nothing": {"": found["black_box"]["auc"]["ours"]},
        "an adversary who knows the signals": {"": found["adaptive"]["auc"]["ours"]},
        "type of poison": found["main"]["by_type"],
        "type unseen in training": found["unseen_type_auc"],
        "capability alone": found["capability_auc"],
        "temperature": found["temperature_auc"],
        "disturbed after training": {
            "nothing": found["main"]["ours"].get("auc_none", {}),
            "a quarter of the agents inactive": found["main"]["ours"].get("auc_inactive", {}),
            "noise of length 0.3 on embeddings": found["main"]["ours"].get("auc_interference", {}),
        },
    }
    for group, rows in groups.items():
        for name, spread in rows.items():
            told = f"{group}: {name}" if name else group
            lines.append(_row([told, _shown(spread), spread.get("n", 0)]))
    return lines


def _terms(main: Mapping[str, Any]) -> list[str]:
    lines = _head("AUC without", "", "n")
    for name, spread in {"nothing": main["auc"]["ours"], **main["without"]}.items():
        told = name.replace("everywhere_", "known to nothing, trained again: ").replace("_", " ")
        lines.append(_row([told, _shown(spread), spread["n"]]))
    lines += ["", *_head("equation 5", "", "n")]
    for name, spread in main["priority"].items():
        lines.append(_row([name.replace("_", " "), _shown(spread), spread["n"]]))
    return lines


def _rewriting(main: Mapping[str, Any]) -> list[str]:
    lines = _head("flagged memories rewritten by an autoencoder, %", "", "n")
    for name, spread in main.get("rewriting", {}).items():
        lines.append(_row([name.replace("_", " "), _shown(spread, PERCENT), spread["n"]]))
    return lines
