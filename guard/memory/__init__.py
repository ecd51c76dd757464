"""Memory writes and pinned tool definitions: candidates, gate, staging, drift.  Pure: no I/O."""
