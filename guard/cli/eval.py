"""``guard eval NAME``: one file per evaluation, ``guard/cli/eval_NAME.py``."""

from __future__ import annotations

import typer

from guard.cli import eval_ablation, eval_classifier, eval_drift, eval_egress, eval_provenance

app = typer.Typer(help="Measure how well the guard decides, on recorded and on generated runs.")

app.command("provenance")(eval_provenance.provenance)
app.command("ablation")(eval_ablation.ablation)
app.command("classifier")(eval_classifier.classifier)
app.command("drift")(eval_drift.drift)
app.command("egress-bench")(eval_egress.egress_bench)
