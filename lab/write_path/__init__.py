"""``guard lab bench write-path``: the mediated write path's tables, through the live proxy."""
