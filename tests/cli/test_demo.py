"""`kohort demo` through the real command line: piped, recorded, interrupted on a terminal, and once with Spark."""

import contextlib
import importlib.util
import os
import pty
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from kohort.demo import pipeline
from serving import environment

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x1b]")


def demo(folder, *arguments, **settings):
    command = [sys.executable, "-m", "kohort.cli", "demo", *arguments]
    return subprocess.Popen(command, env=environment() | {"TMPDIR": str(folder)}, **settings)


def left_behind(folder):
    """Processes that were given this folder in their task."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def number(pattern, text):
    match = re.search(pattern, text)
    assert match, text
    return [int(group.replace(",", "")) for group in match.groups()]


def in_order(text, *parts):
    position = 0
    for part in parts:
        position = text.find(part, position)
        assert position >= 0, f"{part!r} does not follow in:\n{text}"


@pytest.mark.timeout(180)
def test_fast_in_a_pipe_with_a_picture(tmp_path):
    folder, svg = tmp_path / "tmp", tmp_path / "demo.svg"
    folder.mkdir()
    process = demo(folder, "--fast", "--record", str(svg), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=170)
    assert (process.returncode, err) == (0, ""), out
    assert not CONTROL.search(out)
    in_order(out, "FIND_COORDINATOR", "JOIN_GROUP", "SYNC_GROUP", "HEARTBEAT", "kill -9 carol", "carol is evicted",
             "dave joins", "bob says goodbye", "stood still", "carol timed out", "Proved")  # fmt: skip
    sold, read = number(r"([\d,]+) orders sold, ([\d,]+) read: none skipped", out)
    assert sold == read > 500
    assert not left_behind(folder) and not list(folder.iterdir())
    ElementTree.parse(svg)


@pytest.mark.timeout(120)
def test_live_on_a_terminal_until_ctrl_c(tmp_path):
    primary, secondary = pty.openpty()
    process = demo(tmp_path, "--fast", stdin=secondary, stdout=secondary, stderr=secondary, start_new_session=True)
    os.close(secondary)
    seen = b""
    while b"PreparingRebalance" not in seen:
        seen += os.read(primary, 65536)
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(OSError):  # a terminal whose other end is closed
        while chunk := os.read(primary, 65536):
            seen += chunk
    assert process.wait(60) == 130
    assert b"\x1b[" in seen and b"Traceback" not in seen
    assert not left_behind(tmp_path) and not list(tmp_path.iterdir())


def test_wrong_input_is_one_sentence(tmp_path):
    process = demo(tmp_path, "--record", "/no/such/folder/x.svg", stderr=subprocess.PIPE, text=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "does not exist" in err and len(err.splitlines()) == 1


def test_without_spark_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'kohort[spark]'" in pipeline.why_not()


@pytest.mark.timeout(420)
@pytest.mark.conformance
def test_the_whole_demo_with_two_spark_applications(tmp_path):
    pytest.importorskip("pyspark")
    process = demo(tmp_path, "--plain", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=400)
    assert (process.returncode, err) == (0, ""), out
    second = out[out.index("The shop opens again") :]
    in_order(second, "spark-1 joins", "spark-2 joins", "kill -9 of spark-2", "spark-2 is evicted", "Group 'shop-spark'",
             "spark-2 timed out", "Spark's Parquet", "none skipped", "most revenue", "Proved")  # fmt: skip
    sold, read = number(r"([\d,]+) orders sold, ([\d,]+) read: none skipped", second)
    assert sold == read > number(r"([\d,]+) orders sold", out)[0]
    assert not left_behind(tmp_path)
