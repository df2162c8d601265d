"""Run the command line: ``python -m lmpolicy``."""

from lmpolicy.cli import main

if __name__ == "__main__":
    main()
