"""The command line. `kohort serve` starts here without typer, so that a broker is up in a blink; see app.py."""

import signal
import sys

TERMINATED = 143


def main() -> None:
    if sys.argv[1:2] == ["serve"] and not {"-h", "--help"} & set(sys.argv[2:]):
        from kohort.cli.serve import main as serve

        sys.exit(serve(sys.argv[2:]))
    from kohort.cli.run import run

    # Also when it is told to end, a member leaves its group.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    sys.exit(run(sys.argv[1:]))
