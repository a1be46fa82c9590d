"""`python -m bench.promise`: the same as `hedgerow bench promise`."""

from __future__ import annotations

import argparse
import sys

from bench.promise.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.promise", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
