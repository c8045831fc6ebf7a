"""A whole run of the demo: broker, shop, part one, part two, summary; the exit code is 1 where the proof fails."""

from __future__ import annotations

import tempfile
from pathlib import Path

import kohort
from kohort.demo.acts import BROKER, GROUP, Readers, Result, create_topic
from kohort.demo.cast import Cast, CastFailed
from kohort.demo.orders import Shop
from kohort.demo.show import Recorder, Show, make_show
from kohort.demo.summary import proof_lines, rebalance_lines, takeover_line
from kohort.demo.watch import WatchFailed

READER_PROMISE = (
    "they were written but not yet committed at the kill. kohort promises at least once: "
    "an order is committed only after it is written, so a crash repeats orders and never loses one"
)


class DemoFailed(Exception):
    """It cannot go on; the text says why."""


def run(fast: bool, plain: bool, record: Path | None) -> int:
    show = make_show("kohort demo", plain)
    if record is not None:
        show.recorder = Recorder()
    with tempfile.TemporaryDirectory(prefix="kohort-demo-") as folder:
        try:
            code = _play(show, Path(folder), fast)
        except (WatchFailed, CastFailed) as error:
            raise DemoFailed(str(error)) from error
    if record is not None and show.recorder is not None:
        from kohort.demo.picture import write_picture

        write_picture(show.recorder.frames, record, "kohort demo --fast" if fast else "kohort demo")
        show.say("", f"recorded: {record}")
    return code


def _play(show: Show, folder: Path, fast: bool) -> int:
    with kohort.Broker(config=BROKER) as broker, Cast(folder) as cast:
        create_topic(broker.bootstrap_servers)
        first = _part_one(show, cast, broker.bootstrap_servers, 1.0 if fast else 1.6)
        show.say(*_first_summary(first))
        return 0 if first.proof.holds else 1


def _part_one(show: Show, cast: Cast, servers: str, pace: float) -> Result:
    shop = Shop(servers).open()
    try:
        with show:
            show.part(f"A broker is up on {servers}; a shop writes orders to it.")
            return Readers(servers, cast, show, shop, pace).play()
    finally:
        shop.abandon()


def _first_summary(result: Result) -> list[str]:
    return [
        "",
        f"Group {GROUP!r}, from the coordinator's events:",
        *rebalance_lines(result.events),
        takeover_line(result.events, result.victim, result.killed_ms),
        "",
        "The orders, from what the readers wrote:",
        *proof_lines(result.proof, result.victim, "the readers' own files", READER_PROMISE),
        "",
        "proved: nothing was skipped" if result.proof.holds else "NOT PROVED: see above",
    ]
