"""``make compare``: makes decisions whenever a line is read, with the guard that can be imported.

``python decisions_on_demand.py proxy|provenance POLICY CORE`` sets up what ``guard lab bench`` of
that name times, in this or an older revision, and answers each line with the median time of
:data:`TURN` decisions (milliseconds) and the processor time of one of these calls (microseconds).
"""

import asyncio
import importlib
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from statistics import median

import guard

TURN = 200
MANY = 1000
"""Calls of which the benchmark takes its percentiles; it makes fewer to prepare them."""


def begun(name, policy):
    """Return the benchmark's coroutine; it makes its decisions as standard input asks for them."""
    # Earlier commits have the lab inside the guard; the lab of this checkout is not theirs.
    inside = (Path(guard.__file__).parent / "lab").is_dir()
    lab = "guard.lab" if inside else "lab"
    apart = importlib.util.find_spec(f"{lab}.bench_provenance") is not None
    bench = importlib.import_module(f"{lab}.bench_{name if apart else 'proxy'}")
    driver = getattr(bench, "Driver", None) or bench._Driver
    calls = driver.calls

    async def on_demand(self, principal, count):
        if count < MANY:
            return await calls(self, principal, count)
        while sys.stdin.readline():
            before = time.process_time()
            times = await calls(self, principal, TURN)
            spent = (time.process_time() - before) / TURN * 1e6
            sys.stdout.write(json.dumps([median(times) * 1e3, spent]) + "\n")
            sys.stdout.flush()
        raise SystemExit

    driver.calls = on_demand

    def progress(*_):
        """Show nothing."""

    if not apart:
        part = {"proxy": "_quiet", "provenance": "_labelled"}[name]
        return getattr(bench, part)(policy, progress)
    if name == "proxy":
        return bench._inside(policy, progress)
    size = bench.Size(decisions=MANY)
    return bench._inside(bench.load_policies([policy]), size, progress)


if __name__ == "__main__":
    # Its Redis, which it starts, stays on this core as well.
    os.sched_setaffinity(0, {int(sys.argv[3])})
    asyncio.run(begun(sys.argv[1], Path(sys.argv[2])))
