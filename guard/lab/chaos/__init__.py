"""Faults under load, and a checker of what agents, upstreams and the audit log saw meanwhile."""
