"""The unit for systemd and the Dockerfile call `kohort serve` with options that it has."""

import json
import shlex
from pathlib import Path

import pytest

from kohort.cli.serve_options import OPTIONS

DEPLOY = Path(__file__).parents[2] / "deploy"


def unit_command() -> list[str]:
    lines = (DEPLOY / "kohort.service").read_text().splitlines()
    return shlex.split(next(line for line in lines if line.startswith("ExecStart=")).removeprefix("ExecStart="))


def container_command() -> list[str]:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    found: list[str] = json.loads(next(line for line in lines if line.startswith("ENTRYPOINT")).split(" ", 1)[1])
    return found


@pytest.mark.parametrize("command", [unit_command, container_command])
def test_the_command_line_is_one_that_kohort_takes(command) -> None:
    program, verb, *words = command()
    assert (program, verb) == ("/opt/kohort/bin/kohort", "serve")
    asked = [word for word in words if word.startswith("--")]
    assert asked and set(asked) <= {option.flag for option in OPTIONS}


def test_the_unit_keeps_what_is_stored_from_others() -> None:
    text = (DEPLOY / "kohort.service").read_text()
    assert "UMask=0077" in text and "StateDirectoryMode=0700" in text and "NoNewPrivileges=true" in text
