"""Runs the typer application: expected errors become one sentence on standard error and an exit code.

0 done, 1 not done, 2 wrong input, 130 interrupted, 141 nobody reads our output any more.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import typer

from kohort.cli.app import app
from kohort.cli.failures import Failed
from kohort.cli.habits import translate
from kohort.cli.style import ClickException, UsageError

INTERRUPTED = 130
BROKEN_PIPE = 141
PROGRAM = "kohort"


_POSSIBLE = re.compile(r" \(Possible options?: ([^)]*)\)")


def run(arguments: list[str]) -> int:
    arguments = translate(arguments)
    if os.environ.get("_KOHORT_COMPLETE"):
        typer.completion.completion_init()
    command = typer.main.get_command(app)
    try:
        code = command.main(arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return broken_pipe()
    except UsageError as error:
        return _wrong_usage(error)
    except ClickException as error:
        return _say(PROGRAM, error.format_message(), 2)
    except Exception as error:
        return _expected(error)


def _wrong_usage(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message().rstrip())
        return 2
    path = error.ctx.command_path if error.ctx is not None else PROGRAM
    text = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    near = _POSSIBLE.search(text)
    if near is not None:
        text = text[: near.start()] + f"; did you mean {near[1].split(', ')[0]}?"
    return _say(path, f"{text[:1].lower()}{text[1:]}" + ("" if text.endswith("?") else ";") + f" see {path} --help", 2)


def _expected(error: Exception) -> int:
    """Failures that have a sentence; anything else is a bug and keeps its trace."""
    if isinstance(error, Failed):
        return _say(PROGRAM, str(error), error.exit_code)
    from kohort.client.errors import ConfigError
    from kohort.protocol.errors import KafkaError

    if isinstance(error, ConfigError):
        return _say(PROGRAM, str(error), 2)
    if isinstance(error, KafkaError):
        return _say(PROGRAM, error.message, 1)
    raise error


def _say(who: str, sentence: str, code: int) -> int:
    print(f"{who}: {sentence}", file=sys.stderr)
    return code


def broken_pipe() -> int:
    """Python flushes standard output once more at exit; there must be something to flush into."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
