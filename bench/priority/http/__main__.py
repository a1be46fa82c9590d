"""`python -m bench.priority.http`: the same as `hedgerow bench priority --part http`."""

from __future__ import annotations

import argparse
import sys

from bench.priority.cli import add_arguments, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.priority.http", description=__doc__)
    add_arguments(parser)
    parser.set_defaults(part="http")
    sys.exit(main(parser.parse_args()))
