"""An inline egress guard for LLM agents.

The guard stands between an agent and its tools.  What comes in through tool results is labelled,
what leaves through tool calls is judged on those labels, on the session's trajectory and on the
operator's policy, before a byte is forwarded.  See ``docs/architecture.md``.
"""

__version__ = "0.1.0"
