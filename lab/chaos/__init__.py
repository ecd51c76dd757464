"""Faults under load, and a checker of the histories of agents, upstreams and the audit log."""
