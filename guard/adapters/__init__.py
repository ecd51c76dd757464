"""One file or folder per outside thing: it implements a port of the core."""
