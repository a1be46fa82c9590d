"""`python -m bench.plan`: the same as `hedgerow bench plan`."""

from __future__ import annotations

import argparse
import sys

from bench.plan.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.plan", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
