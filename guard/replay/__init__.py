"""Recorded and described calls, judged by the same code as live traffic."""
