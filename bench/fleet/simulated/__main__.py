"""`python -m bench.fleet.simulated`: the same as `hedgerow bench simulated`."""

from __future__ import annotations

import argparse
import sys

from bench.fleet.simulated.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.fleet.simulated", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
