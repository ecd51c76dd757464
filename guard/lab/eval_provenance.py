"""``guard eval provenance``: how well provenance decides, on recorded and on generated runs.

Every figure comes from the open-loop replay that `guard replay` does.  Ground truth is read after
the verdicts, and by evaluation code only.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from guard.adapters.onnx import load_models
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.lab.eval_generated import generated_sections
from guard.lab.eval_recorded import RECORDED, Section, absent, example
from guard.lab.judged_runs import Bench
from guard.lab.rewrite.files import rewrite_files
from guard.policy_files import load_policies
from guard.replay.reports import Report, machine
from guard.settings import models_directory, policies_directory

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Options:
    """What to evaluate on.

    Attributes:
        data: directory of the recorded runs, or None.
        seed: of the generated runs.
        rewrite: seed by which the recorded runs are told again first, None for as they are.
        scale: generated runs per kind, as a multiple of the default.
        progress: called with the name of each part as it begins; what it returns is called after
            each run.
    """

    data: Path | None
    seed: str = "0"
    rewrite: str | None = None
    scale: float = 1.0
    progress: Callable[[str], Callable[[], object]] = lambda _: lambda: None


def eval_provenance(options: Options) -> Report:
    """Replay everything and return the report.

    Raises:
        GuardError: a policy, a trace or the state store is unusable.
    """
    with ExitStack() as stack:
        if options.rewrite is not None and options.data is not None:
            told = Path(stack.enter_context(TemporaryDirectory(prefix="guard-rewrite-")))
            rewrite_files(options.data, told, options.rewrite)
            options = replace(options, data=told)
        bench = Bench(stack.enter_context(EmbeddedRedis()).url, load_models(models_directory()))
        sections = asyncio.run(_sections(bench, options))
    return Report(
        name="provenance",
        machine=machine(),
        checks=[check for section in sections.values() for check in section.checks],
        details={name: section.details for name, section in sections.items()},
    )


async def _sections(bench: Bench, options: Options) -> dict[str, Section]:
    sections: dict[str, Section] = {}
    for name, measure in RECORDED.items():
        path = options.data / name if options.data else None
        if path is None or not path.is_file():
            sections[name] = absent(name)
        else:
            sections[name] = await measure(replace(bench, advance=options.progress(name)), path)
    default = load_policies([policies_directory() / "default.yaml"])
    policies = (example("mail_assistant.yaml"), example("mail_provenance_only.yaml"), default)
    generated = replace(bench, advance=options.progress("generated runs"))
    found = await generated_sections(generated, policies, options.seed, options.scale)
    for name, (checks, details) in found.items():
        sections[name] = Section(checks, details)
    return sections
