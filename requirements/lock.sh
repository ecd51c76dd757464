#!/usr/bin/env bash
# Rewrites the three locks from pyproject.toml; needs `uv`.  One lock serves Python 3.11 to 3.13.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() {
  uv pip compile "$@" --universal --python-version 3.11 \
    --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet
}
python3 - <<'PY' | compile - --output-file requirements/build.txt
import pathlib, re
text = pathlib.Path("pyproject.toml").read_text(encoding="utf-8")
block = re.search(r"^build = \[(.*?)^\]", text, re.S | re.M).group(1)
print("\n".join(re.findall(r'"([^"]+)"', block)))
PY
compile pyproject.toml --output-file requirements/runtime.txt
compile pyproject.toml --extra lab --extra graph --extra dev --output-file requirements/dev.txt
