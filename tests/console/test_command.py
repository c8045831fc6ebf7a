"""`kohort console` and `kohort serve --console-port` as processes: where they say they are, and when they end."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from console_running import PATIENCE_S, until
from serving import Serving, environment

SAYS = "kohort console on "


def console(*words):
    command = [sys.executable, "-m", "kohort.cli", "console", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


def test_beside_a_broker_it_ends_with_it_even_when_that_is_killed(tmp_path):
    serving = Serving("--memory", "--console-port", "0")
    try:
        line = serving.process.stdout.readline().strip()
        assert line.startswith(SAYS)
        address = line.removeprefix(SAYS)
        status = json.load(urllib.request.urlopen(f"{address}api/status", timeout=PATIENCE_S))
        assert status["live"] and status["what"] == serving.address and not status["changes"]
    finally:
        os.kill(serving.process.pid, signal.SIGKILL)
        serving.process.wait(PATIENCE_S)

    def gone():
        try:
            urllib.request.urlopen(f"{address}api/status", timeout=PATIENCE_S).close()
        except OSError:
            return True
        return False

    until(gone, "the console has ended")
    serving.process.stdout.close()
    serving.process.stderr.close()


def test_it_starts_without_a_cluster_and_ends_on_sigterm():
    process = console("--bootstrap-server", "127.0.0.1:1", "--port", "0")
    line = process.stdout.readline()
    assert line.startswith(f"{SAYS}http://127.0.0.1:"), process.communicate(timeout=PATIENCE_S)
    process.terminate()
    _, told = process.communicate(timeout=PATIENCE_S)
    assert "no broker can be reached" in told and "starts all the same" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--history", "/nowhere/at/all"], "holds no history"),
        (["--history", "/tmp", "--allow-changes"], "exclude each other"),
        (["--since", "yesterday"], "is not a time"),
        (["--port", "70000"], "less than or equal to 65535"),
        (["--host", "203.0.113.7", "--port", "0"], "cannot listen on 203.0.113.7"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(words, said):
    process = console("--bootstrap-server", "127.0.0.1:1", *words)
    out, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (1, 2) and said in told and not out
    assert "Traceback" not in told
