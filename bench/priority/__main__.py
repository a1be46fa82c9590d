"""`python -m bench.priority`: the same as `hedgerow bench priority`."""

from __future__ import annotations

import argparse
import sys

from bench.priority.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="hedgerow bench priority", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
