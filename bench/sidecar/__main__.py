"""`python -m bench.sidecar`: the same as `hedgerow bench sidecar`."""

from __future__ import annotations

import argparse
import sys

from bench.sidecar.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="hedgerow bench sidecar", description=__doc__)
    add_arguments(parser)
    sys.exit(main(parser.parse_args()))
