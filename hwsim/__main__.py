"""`python -m hwsim` is `hwsim`."""

import sys

from hwsim.cli import main

if __name__ == "__main__":
    sys.exit(main())
