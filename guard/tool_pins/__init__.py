"""Pinned tool definitions.  Pure: no I/O."""
