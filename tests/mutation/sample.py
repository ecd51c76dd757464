"""Mutation testing of one package: a random sample of its mutants, against its own unit tests.

Mutmut works in a copy of the repository.  It runs, for each mutant, the tests that reach the
mutated function.  ``make mutation`` installs it beside this file.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import accumulate
from operator import itemgetter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE / ".packages"))


def copy_tree(package, target):
    """Copy what git knows of the repository, with the settings for one package."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target / name)
    with (target / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(
            f"""
[tool.mutmut]
source_paths = ["guard"]
only_mutate = ["guard/{package}/*"]
also_copy = ["lab", "policies", "models"]
pytest_add_cli_args = ["-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib \
-p asyncio -p hypothesispytest -p timeout -p xdist --disable-plugin-autoload"]
pytest_add_cli_args_test_selection = ["tests/unit/{package}"]
use_git_change_detection = false
track_dependencies = false
"""
        )


def run(package, options):
    """Test a sample in the current directory, print the survivors and return the counts."""
    from mutmut import __main__ as mutmut
    from mutmut.state import state
    from mutmut.stats import status_by_exit_code

    make = mutmut.get_mutant_runner

    def keep_fastest(*, tests):
        """Leave each function the tests that take a given time together; all have just passed."""
        duration = state().duration_by_test.__getitem__
        for name, found in filter(itemgetter(1), state().tests_by_mangled_function_name.items()):
            spent = accumulate(map(duration, sorted(found, key=duration)))
            kept = zip(sorted(found, key=duration), spent, strict=True)
            fast = {one for one, total in kept if total <= options.seconds}
            state().tests_by_mangled_function_name[name] = fast or {min(found, key=duration)}
        return 0

    def runner(processes):
        found = make(processes)
        found.run_clean_tests = keep_fastest
        return found

    mutmut.get_mutant_runner = runner

    Path("mutants").mkdir(exist_ok=True)
    mutmut.copy_src_dir()
    mutmut.copy_also_copy_files()
    mutmut.setup_source_paths()
    mutmut.create_mutants(options.processes)
    found, _ = mutmut.collect_source_file_mutation_data(mutant_names=[])
    names = sorted(name for _, name, _ in found)
    chosen = random.Random(options.seed).sample(names, min(options.sample, len(names)))
    print(f"{package}: {len(chosen)} of {len(names)} mutants, seed {options.seed}", flush=True)
    mutmut._run(chosen, options.processes)
    tried, _ = mutmut.collect_source_file_mutation_data(mutant_names=chosen)
    for _, name, code in tried:
        if status_by_exit_code[code] in {"survived", "no tests"}:
            print(f"--- {status_by_exit_code[code]}", flush=True)
            mutmut.show.callback(name)
    return Counter(status_by_exit_code[code] for _, _, code in tried)


def main():
    """Run the samples that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", default=["core", "provenance"])
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests per mutant")
    options = parser.parse_args()
    for package in options.packages:
        with tempfile.TemporaryDirectory() as folder:
            copy_tree(package, Path(folder))
            os.chdir(folder)
            print(package, dict(run(package, options)))
            os.chdir(ROOT)


if __name__ == "__main__":
    main()
