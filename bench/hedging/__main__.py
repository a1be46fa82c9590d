"""`python -m bench.hedging`: the same as `hedgerow bench hedging`."""

from __future__ import annotations

import argparse
import sys

from bench.hedging.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="hedgerow bench hedging", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
