"""`python -m router.lab.emulator`: the same program as `hedgerow emulate`."""

from __future__ import annotations

import argparse
import sys

from router.lab.emulator.command import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m router.lab.emulator", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
