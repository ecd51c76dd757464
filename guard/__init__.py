"""An inline egress guard for LLM agents.

The guard stands between an agent and its tools.  What comes in through tool results is labelled,
what leaves through tool calls is judged on those labels, on the session's trajectory and on the
operator's policy, before a byte is forwarded.  See ``docs/architecture.md``.
"""

import os

# ONNX Runtime sends telemetry, lately from Linux and macOS as well: when it is imported it writes a
# device id and a queue of events to disk and starts an uploader.  A guard against data leaving must
# not send any itself.  The runtime reads the switch once, at its import, which no module of ours
# can do before this has run.  The second name is that of the versions before it was renamed.
os.environ["ORT_DISABLE_TELEMETRY"] = os.environ["ORT_TELEMETRY_DISABLED"] = "1"

__version__ = "0.1.0"
