"""`python -m bench.gain`: the same as `hedgerow bench gain`."""

from __future__ import annotations

import argparse
import sys

from bench.gain.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="hedgerow bench gain", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
