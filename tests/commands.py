"""Commands of the program and of the benches, run in the test's own process."""

import argparse
from collections.abc import Callable
from types import ModuleType


def command_of(module: ModuleType) -> Callable[..., int]:
    """A function that runs the command of `module` with these words; it returns the exit status."""

    def run(*words: str) -> int:
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        return int(module.main(parser.parse_args(words)))

    return run
