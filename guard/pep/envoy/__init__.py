"""Envoy in front of the guard: what it says of its clients, and whether its configuration holds."""
