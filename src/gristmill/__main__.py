"""`python -m gristmill`: the command line."""

import sys

from gristmill.cli import main

if __name__ == "__main__":
    sys.exit(main())
