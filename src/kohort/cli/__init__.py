"""The command line. `kohort serve` starts here without typer, so that a broker is up in a blink; see app.py."""

import sys


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        from kohort.cli.serve import main as serve

        sys.exit(serve(sys.argv[2:]))
    from kohort.cli.run import run

    sys.exit(run(sys.argv[1:]))
