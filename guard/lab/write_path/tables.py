"""The paper's tables beside what was measured here, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console


def show_tables(details: Mapping[str, Any], console: Console) -> None:
    """Print the tables."""
    core = details["core_nfr"]
    attacks = [name for name in next(iter(core.values())) if name not in {"all", "paper"}]
    table = Table("attack", *core, title="Core NFR: trials without row, vector or version advance")
    for attack in [*attacks, "all", "paper"]:
        table.add_row(attack, *(str(core[system][attack]) for system in core))
    console.print(table)
    table = Table("", *details["prlr"], title="In the agent's next turn")
    table.add_row("here", *(f"{row['leaked']}/{row['n']}" for row in details["prlr"].values()))
    table.add_row("paper", *(f"{row['paper']:.0%}" for row in details["prlr"].values()))
    console.print(table)
    late = details["lategate"]
    table = Table("LateGate", "here", "paper")
    for name, paper in zip(
        ("row_removed", "vector_removed", "version_unchanged", "absent_from_probe"),
        late["paper"].values(),
        strict=True,
    ):
        table.add_row(name, f"{late[name]}/{late['n']}", f"{paper}/150")
    console.print(table)
    table = Table("mode", "rate", "core NFR", "paper", "false positives", title="Label noise")
    for row in details["label_noise"]:
        false = "-" if row["false_positives"] is None else f"{row['false_positives']:.1%}"
        table.add_row(
            row["mode"],
            f"{row['rate']:.0%}",
            f"{row['core_nfr']:.1%}",
            f"{row['paper']:.1%}",
            false,
        )
    console.print(table)
    table = Table("attempt", "trust", "decision", title="Trust")
    for row in details["trust_timeline"]:
        table.add_row(str(row["attempt"]), row["trust"], row["decision"])
    console.print(table)
    for name in ("semantic_limit", "forgery_on_the_wire", "speed"):
        console.print(f"{name}: {details[name]}")
