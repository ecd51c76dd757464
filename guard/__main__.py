"""``python -m guard``."""

from guard.cli import main

if __name__ == "__main__":
    main()
