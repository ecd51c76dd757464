"""Enforcement point of coding agents: their hooks ask the running guard about every tool call."""
