"""The console: pages and an API on which people see decisions, answer requests and act.

A process of its own beside the guard (docs/adr): it reads the audit log and shares the guard's
Redis and label key, so neither can stop or slow the other.
"""
