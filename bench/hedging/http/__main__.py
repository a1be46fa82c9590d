"""`python -m bench.hedging.http`: this part of the hedging bench alone."""

from __future__ import annotations

import argparse
import sys

from bench.hedging.http.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.hedging.http", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
