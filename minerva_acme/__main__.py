"""`python -m minerva_acme`: the command `minerva`."""

import sys

from minerva_acme.cli import main

if __name__ == "__main__":
    sys.exit(main())
