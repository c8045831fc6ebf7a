"""A whole run of the demo: broker, shop, part one, part two, summary; the exit code is 1 where the proof fails."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import kohort
from kohort.demo import acts, pipeline
from kohort.demo.acts import Result
from kohort.demo.cast import Cast, CastFailed
from kohort.demo.orders import Shop
from kohort.demo.show import Recorder, Show, make_show
from kohort.demo.summary import part_lines
from kohort.demo.watch import WatchFailed


class DemoFailed(Exception):
    """It cannot go on; the text says why."""


def run(fast: bool, plain: bool, record: Path | None, part: int | None = None) -> int:
    signal.signal(signal.SIGTERM, _end)
    show = make_show("kohort demo", plain)
    if record is not None:
        show.recorder = Recorder()
    with tempfile.TemporaryDirectory(prefix="kohort-demo-", ignore_cleanup_errors=True) as folder:
        try:
            code = _play(show, Path(folder), fast, part)
        except (WatchFailed, CastFailed) as error:
            raise DemoFailed(str(error)) from error
    if record is not None and show.recorder is not None:
        from kohort.demo.picture import write_picture

        write_picture(show.recorder.frames, record, "kohort demo --fast" if fast else "kohort demo")
        show.say("", f"recorded: {record}")
    return code


def _end(number: int, frame: object) -> None:
    """As after ctrl-C: end all processes, remove the folder."""
    raise SystemExit(128 + number)


def _play(show: Show, folder: Path, fast: bool, part: int | None) -> int:
    without_spark = fast or part == 1
    missing = None if without_spark else pipeline.why_not()
    tempo = acts.FAST if fast else acts.TO_WATCH
    results: list[Result] = []
    with kohort.Broker(config=acts.broker_config(tempo)) as broker, Cast(folder) as cast:
        servers = broker.bootstrap_servers
        acts.create_topics(servers)
        spark = None if without_spark or missing else pipeline.Pipeline(servers, cast, show)
        if part != 2:
            results.append(_part_one(show, cast, servers, tempo))
            _say(show, part_lines(acts.GROUP, results[0], "the readers' own files"))
        if spark is not None and all(result.proof.holds for result in results):
            sold = results[0].proof.sold if results else 0
            results.append(_part_two(show, spark, servers, sold))
            top = ", ".join(f"{country} {revenue:,.2f}" for country, revenue, _ in spark.top)
            rows = part_lines(pipeline.GROUP, results[-1], "Spark's Parquet")
            _say(show, [*rows, f"  most revenue, by Spark: {top}"])
        elif missing is not None:
            show.say("", f"Part 2, the same with two Spark queries, is left out: {missing}.")
        return _verdict(show, *results) if results else 1


def _part_one(show: Show, cast: Cast, servers: str, tempo: acts.Tempo) -> Result:
    shop = Shop(servers).open()
    try:
        with show:
            show.part(f"A broker is up on {servers}; a shop writes orders to it.")
            return acts.Readers(servers, cast, show, shop, tempo).play()
    finally:
        shop.abandon()


def _part_two(show: Show, spark: pipeline.Pipeline, servers: str, sold: int) -> Result:
    shop = Shop(servers, first=sold).open()
    try:
        with show:
            show.part("The shop opens again; what it sold before is still in the topic.")
            return spark.play(shop, sold)
    finally:
        shop.abandon()


def _say(show: Show, lines: list[str]) -> None:
    show.say("", *lines)
    if show.recorder is not None:
        show.recorder.add_text(lines)


def _verdict(show: Show, *results: Result) -> int:
    proved = all(result.proof.holds for result in results)
    repeated = sum(len(result.proof.twice) for result in results)
    again = f"{repeated:,} were read twice, none of them after its commit" if repeated else "none was read twice"
    text = f"Proved: no order was skipped, {again}."
    show.say("", text if proved else "NOT PROVED: see above.")
    return 0 if proved else 1
