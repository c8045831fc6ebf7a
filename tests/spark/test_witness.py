"""A process that was killed is told of; one that has said goodbye is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from spark.streams import RUNNER, descendants, driver_processes, one_of

PROGRAM = """
import os, sys, threading
from kohort.spark.witness import watch
kept = os.open(os.devnull, os.O_RDONLY)
goodbye = watch("the last words")
print(os.getpid(), flush=True)
sys.stdin.readline()
goodbye()
print("goodbye", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def process() -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, RUNNER], text=True, **pipes)  # type: ignore[call-overload,no-any-return]


def test_a_process_that_is_killed_is_told_of(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout.read() == "", "the witness does not hold the pipe open"
    assert process.stderr.read() == "the last words\n"
    process.communicate()


@pytest.mark.parametrize("killed", [True, False])
def test_a_process_that_has_said_goodbye_is_not(process: subprocess.Popen[str], killed: bool) -> None:
    assert process.stdout is not None and process.stdin is not None
    process.stdout.readline()
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "goodbye\n"
    if killed:
        os.kill(process.pid, signal.SIGKILL)
    assert process.communicate()[1] == ""


def test_a_witness_is_not_taken_for_the_process_of_a_query(process: subprocess.Popen[str]) -> None:
    """By the tests that kill one: it is a fork, so it has the same command line."""
    assert process.stdout is not None
    process.stdout.readline()
    assert len(descendants(RUNNER, {os.getpid()})) == 2 and one_of(driver_processes()) == process.pid
    process.communicate("\n\n")
    assert driver_processes() == set()
