"""Kinds of destinations, their canonical forms, and finding them in text.  Pure: no I/O."""
