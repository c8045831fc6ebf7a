"""`make bench`: runs the chosen sections, prints a table for each, and writes them to a file where asked.

    python bench/run.py --only broker,coordinator --seconds 5 --json results.json

A section is a module of this folder with `run(options)`, which gives its tables one by one; both sides do the same work
in one run. Or it is a program of its own that prints what it finds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECTIONS = (
    "broker",
    "coordinator",
    "consumer_groups",
    "transactions",
    "cluster",
    "assignors",
    "consume",
    "produce",
    "decode",
    "log",
    "security",
    "hostile",
    "spark",
    "spark_sink",
    "history",
)
QUICK_PROGRAMS = {
    "assignors": ["--members", "50", "--partitions", "1000", "--topics", "1", "--runs", "2"],
    "decode": ["--rows", "20000", "--rounds", "2"],
    "log": [],
    "history": ["--records", "20000", "--rounds", "1"],
}
"""Sections that are programs, with the arguments that make them small."""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure kohort and Apache Kafka side by side.")
    parser.add_argument("--only", default="", help=f"sections, comma separated: {', '.join(SECTIONS)}")
    parser.add_argument(
        "--parts", default="", help="of cluster: failover, move, week, two, cpu, latency; of spark_sink: 100, 1000"
    )
    parser.add_argument("--rounds", type=int, default=0, help="of sections with Spark: how many count, one goes before")
    parser.add_argument("--places", default="", help="of its latencies: files, directory, S3, S3 + 30 ms")
    parser.add_argument("--sides", default="kohort,kafka", help="kohort, kafka or both")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--warmup", type=float, default=3.0, help="load before each measurement, not counted")
    parser.add_argument("--quick", action="store_true", help="small sizes and short measurements: does it run at all")
    parser.add_argument("--attacks", default="", help="of hostile those with one of these in their names, split by |")
    parser.add_argument("--json", type=Path, help="also write the tables to this file")
    options = parser.parse_args(arguments)
    options.sides = [side for side in options.sides.split(",") if side]
    options.attacks = [part for part in options.attacks.split("|") if part]
    options.parts = [part for part in options.parts.split(",") if part]
    options.places = [place for place in options.places.split(",") if place]
    options.only = [name for name in options.only.split(",") if name] or list(SECTIONS)
    unknown = sorted({*options.only} - {*SECTIONS})
    if unknown:
        parser.error(f"unknown section {', '.join(unknown)}: choose from {', '.join(SECTIONS)}")
    if options.quick:
        options.seconds, options.warmup = 1.0, 0.5
    return options


def machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}"
    )


def run_section(name: str, options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Runs and prints one section; yields what goes into the file."""
    if name in QUICK_PROGRAMS:
        command = [sys.executable, str(HERE / f"{name}.py"), *(QUICK_PROGRAMS[name] if options.quick else [])]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        print(f"\n{text.rstrip()}", flush=True)
        yield {"section": name, "text": text}
        return
    for table in importlib.import_module(name).run(options):
        print(f"\n{table.as_text()}", flush=True)
        yield {"section": name, **table.as_json()}


def main(arguments: list[str] | None = None) -> int:
    sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]
    options = parse_arguments(arguments)
    from targets import usable_sides

    options.sides, reasons = usable_sides(options.sides)
    for line in (machine(), *reasons):
        print(line, flush=True)
    results = [result for name in options.only for result in run_section(name, options)]
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "tables": results}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
