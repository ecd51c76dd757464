"""The mediated write path of memories: candidates, gate, staging, drift.  Pure: no I/O."""
