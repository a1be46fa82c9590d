"""The command `hedgerow completion`: prints the completion script of a shell.

The optional package shtab makes the script from the parser of all commands.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

SHELLS: Final = ("bash", "zsh", "fish")
_OK, _CANNOT_RUN = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print a completion script: hedgerow completion bash > FILE; source FILE"
    parser.add_argument("shell", choices=SHELLS)


def main(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        print("hedgerow: completion needs shtab: pip install shtab", file=sys.stderr)
        return _CANNOT_RUN
    from router.cli import full_parser

    print(shtab.complete(full_parser(), args.shell))
    return _OK
