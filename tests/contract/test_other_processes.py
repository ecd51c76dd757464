"""What several processes do together: one audit log, and communities that another one finds."""

import multiprocessing
import os

from guard.adapters.audit_log import AuditLogFile
from guard.adapters.processes.separate_process import SeparateProcess
from tests.unit.adapters.test_audit_log import lines, record
from tests.unit.decision.test_selection import communal, drawn_in, store

__all__ = ["communal", "store"]
"""Fixtures."""


def _write_many(path, worker, count):
    log = AuditLogFile(path)
    for index in range(count):
        log.decision(record(call_id=f"{worker}-{index}", session="x" * 100))


def test_processes_that_share_a_file_keep_their_lines_whole(tmp_path):
    """Four processes, each line parses and none is missing."""
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write_many, args=(path, n, 200)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert {line["decision_id"] for line in lines(path)} == {
        f"{worker}-{index}" for worker in range(4) for index in range(200)
    }


async def test_a_community_is_found_in_another_process(communal):
    """The real one: its answer is ours, and it is not this process that found it."""
    seen = []
    process = SeparateProcess()

    async def apart(function, *arguments):
        seen.append(await process.run(os.getpid))
        return await process.run(function, *arguments)

    communal.guard._selections._apart = apart
    verdict = await drawn_in(communal)
    assert verdict.reasons[0].code == "selection_diverged"
    assert seen
    assert os.getpid() not in seen
