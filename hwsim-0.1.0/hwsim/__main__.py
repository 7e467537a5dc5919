"""Entry point of `python -m hwsim`, which is the same as the command `hwsim`."""

import sys

from hwsim.cli import main

if __name__ == "__main__":
    sys.exit(main())
