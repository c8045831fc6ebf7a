"""What a test pays for its first broker, for the next ones, and for a pytest plugin that it does not use.

    python bench/first_broker.py [--runs 15]

CPU time of a fresh process, all threads: from before `import kohort` until the broker has answered its first
ApiVersions, asked over a plain socket. The median of some runs; a run before them, which does not count, leaves the
bytecode, as the first import of an installed package does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

ASK = """
import socket, struct
def ask(servers):
    host, _, port = servers.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(struct.pack(">ihhih1s", 11, 18, 0, 7, 1, b"c"))
        size, correlation, error = struct.unpack(">iih", connection.recv(10, socket.MSG_WAITALL))
        assert (correlation, error) == (7, 0), (correlation, error)
"""
FIRST = """
from time import process_time
began = process_time()
import kohort
with kohort.Broker() as broker:
    ask(broker.bootstrap_servers)
    print((process_time() - began) * 1000)
took = []
for _ in range(20):
    began = process_time()
    with kohort.Broker() as broker:
        ask(broker.bootstrap_servers)
        took.append(process_time() - began)
print(sorted(took)[10] * 1000)
"""
PLUGIN = """
import sys, pytest
from time import process_time
began = process_time()
import kohort.testing
print((process_time() - began) * 1000)
print(sum(name.split(".")[0] == "kohort" for name in sys.modules))
"""


def medians(program: str, runs: int) -> list[tuple[float, float, float]]:
    """Of each number that the program prints: the median, the least, the most. The first run does not count."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    rows = []
    for _ in range(runs + 1):
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        rows.append([float(line) for line in done.stdout.split()])
    return [(statistics.median(column), min(column), max(column)) for column in zip(*rows[1:], strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    first, later = medians(ASK + FIRST, options.runs)
    plugin, modules = medians(PLUGIN, options.runs)
    for what, (middle, least, most) in (
        ("the first broker of a process (goal: below 150)", first),
        ("a later one (goal: 4)", later),
        (f"the pytest plugin where it is not used ({modules[0]:.0f} modules of kohort)", plugin),
    ):
        print(f"{what}: {middle:.1f} ms of CPU, {least:.1f} to {most:.1f}")


if __name__ == "__main__":
    main()
