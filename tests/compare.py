"""``make compare BASE=COMMIT``: speed of the code at two commits, side by side.

The files of each commit are unpacked apart and run by this Python with its packages, so that only
the code differs.  Speed: a guard of each commit, or a process that makes decisions,
work in turns of a second or less (:mod:`lab.interleaved`).  One process may cost a tenth more
than another one of the same code, so that the processes are started anew for each pair: a figure
has one ratio new / base per pair, and its 95 % interval is over pairs.

A decision is a conversation of a process with its Redis.  Whether the two share a core or wake each
other from one to the other changes its time by half, and the scheduler settles that by chance, once
for the life of a process.  So both stand on one core, the same for either side.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from guard.core.errors import GuardError
from guard.processes.loopback import Rig
from guard.store.embedded import find_server
from lab.guard_processes import begin_guard, processor_time, worker_of
from lab.interleaved import in_turns, ratio_of
from lab.load import UPSTREAM, Contestant, run_load
from tests.commits import unpack

PAIRS = 12
FEWEST = 3
BLOCKS = 6
BURST = 1.0
WARM = 2.0
SIDES = ("base", "new")
LOSS = 0.03
"""The loss that an interval must exclude."""


@contextmanager
def redis_on_path():
    """Give a PATH on which every commit finds the same Redis server."""
    with tempfile.TemporaryDirectory(prefix="guard-compare-") as directory:
        Path(directory, "redis-server").symlink_to(find_server())
        yield f"{directory}:{os.environ['PATH']}"


def environment(tree, search):
    """Return the variables with which a tree's guard runs; it keeps no state on disk.

    Args:
        tree: the commit's files.
        search: the PATH.

    Raises:
        CalledProcessError: the code that would run is not the tree's.
    """
    found = {**os.environ, "PYTHONPATH": str(tree), "PATH": search, "GUARD_DATA": "memory"}
    mine = f"import guard; assert guard.__file__.startswith({str(tree)!r}), guard.__file__"
    subprocess.run([sys.executable, "-c", mine], cwd=tree, env=found, check=True)
    return found


def requests(trees, environments, blocks, seed):
    """Load a guard of each commit in turns; return requests per second, and a worker's time each.

    Raises:
        GuardError: a guard did not start, or refused calls.
    """
    sides = []
    with ExitStack() as stack:
        upstream = stack.enter_context(Rig()).server(UPSTREAM)
        for side in SIDES:
            rig = Rig(root=trees[side], environment=environments[side])
            policy = trees[side] / "policies" / "default.yaml"
            port, child = begin_guard(stack.enter_context(rig), policy, upstream)
            sides.append((port, child.process.pid))
        for port, _ in sides:
            run_load(Contestant(port), WARM)
        pairs = list(in_turns(blocks, *(partial(_burst, *side) for side in sides), seed=seed))
    return {
        "requests/s": _sides(pairs, 0),
        "worker us per request": _sides(pairs, 1),
    }


def _burst(port, supervisor):
    worker = worker_of(supervisor)
    before = processor_time(worker)
    load = run_load(Contestant(port), BURST)
    if load.errors:
        raise GuardError(f"{load.errors} of the calls failed")
    spent = processor_time(worker) - before
    return load.per_second, spent / (load.per_second * BURST) * 1e6


def decisions(name, trees, environments, blocks, seed):
    """Have a process of each commit make decisions in turns; return how long one takes.

    Args:
        name: of the benchmark whose decisions they are.
        trees: the files by side.
        environments: the variables by side.
        blocks: of four turns.
        seed: of their order, and of the core that they share.
    """
    cores = sorted(os.sched_getaffinity(0))
    core = cores[seed % len(cores)]
    with ExitStack() as stack:
        sides = []
        for side in SIDES:
            rig = stack.enter_context(Rig(root=trees[side], environment=environments[side]))
            sides.append(_decider(rig, name, trees[side], core))
        for ask in sides:
            ask()
        pairs = list(in_turns(blocks, *sides, seed=seed))
    return {
        f"{name} decision p50 ms": _sides(pairs, 0),
        f"{name} call, processor us": _sides(pairs, 1),
    }


def _decider(rig, name, tree, core):
    """Start a process that makes decisions; return a function that asks for them."""
    script = Path(__file__).with_name("decisions_on_demand.py")
    words = (str(script), name, str(tree / "policies" / "default.yaml"), str(core))
    process = rig.start(name, "-u", *words, read=True).process

    def ask():
        process.stdin.write(b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    return ask


def _sides(pairs, figure):
    """Return a figure of the base and of the new code: medians over the turns of each."""
    base, new = ([turn[figure] for pair in pairs for turn in pair[side]] for side in (0, 1))
    return median(base), median(new)


def main():
    """Compare and print; return 1 where a loss cannot be excluded."""
    parser = argparse.ArgumentParser(prog="make compare", description=__doc__)
    parser.add_argument("base")
    parser.add_argument("--new", default="HEAD", help="commit to judge (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of processes that are started")
    parser.add_argument(
        "--blocks",
        type=int,
        default=BLOCKS,
        help="of four turns, of each pair (default: %(default)s)",
    )
    options = parser.parse_args()
    if options.pairs < FEWEST:
        parser.error(f"an interval needs {FEWEST} pairs at least")
    measured = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="guard-compare-") as place, redis_on_path() as search:
        trees = {side: Path(place, side) for side in SIDES}
        unpack(options.base, trees["base"])
        unpack(options.new, trees["new"])
        environments = {side: environment(tree, search) for side, tree in trees.items()}
        for pair in range(options.pairs):
            found = requests(trees, environments, options.blocks, pair)
            for bench in ("proxy", "provenance"):
                found |= decisions(bench, trees, environments, options.blocks, pair)
            for name, both in found.items():
                measured[name].append(both)
            print(f"pair {pair + 1} of {options.pairs}", file=sys.stderr, flush=True)
    print(f"{'':36}{options.base:>10.9}{options.new:>10.9}")
    good = True
    for name, figures in measured.items():
        ratio = ratio_of([math.log(new / base) for base, new in figures])
        held = ratio.low >= 1 - LOSS if name.endswith("/s") else ratio.high <= 1 + LOSS
        good &= held
        before, after = (median(side) for side in zip(*figures, strict=True))
        print(
            f"{name:36}{before:10.4g}{after:10.4g}"
            f"  ratio {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
            f"  {'no loss above' if held else 'cannot exclude a loss above'} {LOSS:.0%}"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
