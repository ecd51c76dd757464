"""Memory: the mediated write path with its gate, and the labels of what agents read and keep."""
