"""Acts of operators, each once: the console, its API and commands are thin over them."""
