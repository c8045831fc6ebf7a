"""What processes write to standard error while a command that starts Spark works."""

import subprocess
import sys

from serving import environment

PROGRAM = """
import subprocess, sys
from kohort.cli.failures import Failed
from kohort.cli.quiet import quiet_processes

def noise():
    subprocess.run(["sh", "-c", "echo WARN from the JVM >&2"])

with quiet_processes():
    noise()
    print("a word of ours", file=sys.stderr)
print("after", file=sys.stderr)
if sys.argv[1] != "works":
    with quiet_processes():
        noise()
        raise Failed("known") if sys.argv[1] == "fails" else RuntimeError("unknown")
"""


def said(how):
    command = [sys.executable, "-c", PROGRAM, how]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60).stderr


def test_processes_are_quiet_where_all_goes_well():
    assert said("works") == "a word of ours\nafter\n"


def test_what_they_wrote_is_shown_where_it_does_not():
    assert said("breaks").startswith("a word of ours\nafter\nWARN from the JVM\nTraceback")
    assert "JVM" not in said("fails")
