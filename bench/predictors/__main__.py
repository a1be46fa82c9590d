"""`python -m bench.predictors`: the same as `hedgerow bench predictors`."""

from __future__ import annotations

import argparse
import sys

from bench.predictors.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.predictors", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
