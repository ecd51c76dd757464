"""Handling of one message, the same for every enforcement point."""
