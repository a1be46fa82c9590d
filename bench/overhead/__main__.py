"""`python -m bench.overhead`: the same as `hedgerow bench overhead`."""

from __future__ import annotations

import argparse
import sys

from bench.overhead.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="hedgerow bench overhead", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
