"""The wrapper decides nothing: what it would decide with is loaded once, by the running guard."""

import subprocess
import sys


def test_a_wrapper_loads_no_model_and_no_store():
    """Ten wrapped servers cost ten small processes."""
    heavy = ("onnxruntime", "numpy", "redis", "hiredis", "mitmproxy", "mcp")
    code = f"import sys, guard.cli.stdio; print([m for m in {heavy!r} if m in sys.modules])"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert loaded.stdout.strip() == "[]"
