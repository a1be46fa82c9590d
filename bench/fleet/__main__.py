"""`python -m bench.fleet`: the same as `hedgerow bench fleet`."""

from __future__ import annotations

import argparse
import sys

from bench.fleet.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="hedgerow bench fleet", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
