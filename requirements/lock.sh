#!/usr/bin/env bash
# Rewrites the locks from pyproject.toml; needs `uv`.  One lock serves Python 3.11 to 3.13.
# Extras stay in the locks: pip rejects an extra of a locked package once a newer release exists.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() {
  uv pip compile "$@" --universal --python-version 3.11 \
    --generate-hashes --no-strip-extras --no-emit-index-url --no-annotate --no-header --quiet
}
extra() {
  python3 -c 'import sys, tomllib
with open("pyproject.toml", "rb") as file:
    print("\n".join(tomllib.load(file)["project"]["optional-dependencies"][sys.argv[1]]))' "$1"
}
extra build | compile - --output-file requirements/build.txt
extra release | compile - --output-file requirements/release.txt
extra docs | compile - --output-file requirements/docs.txt
compile pyproject.toml --output-file requirements/runtime.txt
# The extras that README says are in the container image.
compile pyproject.toml --extra console --extra graph --extra incidents --extra otel --output-file requirements/image.txt
compile pyproject.toml lab/pyproject.toml --no-emit-package agent-egress-guard \
  --extra console --extra graph --extra incidents --extra dev --output-file requirements/dev.txt
