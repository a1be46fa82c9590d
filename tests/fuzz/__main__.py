"""Coverage-guided fuzzing of one target: `python -m tests.fuzz TARGET CORPUS [OPTION…]`.

Needs the extra `fuzz`. CORPUS is a folder that keeps the found inputs, so that a later run
continues; the options are libFuzzer's (`-max_total_time=600`).
"""

import sys
from pathlib import Path


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=["router"]):
        from tests.fuzz.seeds import SEEDS
        from tests.fuzz.targets import TARGETS
    if len(sys.argv) < 3 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: python -m tests.fuzz {{{','.join(TARGETS)}}} CORPUS [OPTION…]")
    name, corpus = sys.argv[1], Path(sys.argv[2])
    corpus.mkdir(parents=True, exist_ok=True)
    for index, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{index}").write_bytes(seed)
    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[3:]], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
