"""The mediated write path: candidates, the gate, where text came from, drift."""
