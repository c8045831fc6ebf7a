"""Coverage-guided fuzzing of the decoders and the broker with atheris, where it is installed (pip install atheris).

    python tools/fuzz.py request_codec                      # until something breaks, or Ctrl-C
    python tools/fuzz.py broker_frames -max_total_time=600  # and other options of libFuzzer; corpus/ may follow

The targets are those of the tests, tests/fuzz_targets.py. Without atheris: KOHORT_FUZZ_EXAMPLES=10000 pytest tests/fuzz
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))


def main(arguments: list[str]) -> int:
    try:
        import atheris
    except ImportError:
        print("tools/fuzz.py needs atheris: pip install atheris", file=sys.stderr)
        return 1
    with atheris.instrument_imports(include=["kohort"]):
        from fuzz_targets import TARGETS
    if not arguments or arguments[0] not in TARGETS:
        print(f"usage: python tools/fuzz.py TARGET [libFuzzer options]; targets: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    logging.disable(logging.WARNING)
    atheris.Setup([sys.argv[0], *arguments[1:]], TARGETS[arguments[0]])
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
