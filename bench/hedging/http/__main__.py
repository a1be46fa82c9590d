"""`python -m bench.hedging.http`: the same as `hedgerow bench hedging --part http`."""

from __future__ import annotations

import argparse
import sys

from bench.hedging.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.hedging.http", description=__doc__)
    add_arguments(parser)
    parser.set_defaults(part="http")
    sys.exit(main(parser.parse_args()))
