"""The console with 2,000 groups and 100,000 rebalances in a real Chromium: first paint, frames a second, memory.

    python bench/console.py [--updates 3600]

One group has half of all rebalances. Its timeline is dragged and zoomed; a frame counts when the browser has drawn it.
With --updates: memory of the page after so many live rebalances, a second apart by the console's clock, as fast as the
page takes them: 3,600 are an hour.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from playwright.sync_api import sync_playwright

from console_browser import FLAGS, chromium
from console_running import Running
from kohort.console import app
from kohort.console.source import Source
from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.insight.generations import GenerationMember, StoredGeneration

GROUPS, REBALANCES = 2_000, 100_000
TABLE_PAINTED = """const watch = new MutationObserver(() => {
  if (!document.querySelector("tbody tr")) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.tablePainted = performance.now(); }, 0));
});
watch.observe(document, { subtree: true, childList: true });"""
FRAMES = """async (act) => {
  const chart = window.kohortTimeline, times = [], span = chart.to - chart.from, first = chart.from;
  for (let i = 0; i < 120; i += 1) {
    const from = Math.round(first - i * span / 240);
    if (act === "pan") chart.on.span(from, from + span, false);
    else chart.zoom(i < 60 ? 0.95 : 1 / 0.95);
    await new Promise(requestAnimationFrame);
    times.push(performance.now());
  }
  const gaps = times.slice(1).map((t, i) => t - times[i]).sort((a, b) => a - b);
  const fps = 1000 * gaps.length / (times[times.length - 1] - times[0]);
  return { fps, slowest: gaps[gaps.length - 1], painted: chart.data.painted };
}"""


def rebalance(source: Source, group: str, number: int, at_ms: int) -> None:
    """A member comes or goes; two others stay."""
    three = number % 2
    whos = [Who(f"{group}-{name}-id", None, f"{group}-{name}", "/10.0.0.1") for name in "abc"]
    kind = CauseKind.JOINED if three else CauseKind.LEFT
    told = {"group_id": group, "generation": number, "cause": Cause(kind, (whos[2],))}
    source.ledger.event(events.RebalanceStarted(at_ms=at_ms, members=3, rebalance_timeout_ms=60_000, **told))
    members = tuple(
        GenerationMember(who, 10_000, 60_000, ("orders",), frozenset(("orders", p) for p in range(i, 6, 2 + three)))
        for i, who in enumerate(whos[: 2 + three])
    )
    source.ledger.generation(group, StoredGeneration(at_ms + 80, number, "range", whos[0].member_id, members))
    done = {"protocol": "range", "leader_id": whos[0].member_id, "members": 2 + three, "duration_ms": 80}
    source.ledger.event(events.RebalanceCompleted(at_ms=at_ms + 80, **told, **done))


@dataclass(slots=True)
class Clocked(Source):
    """Its clock can be put forward."""

    ahead_ms: int = 0

    def now_ms(self) -> int:
        return Source.now_ms(self) + self.ahead_ms


def filled() -> Clocked:
    source = Clocked(what="made up", live=True)
    now_ms = source.now_ms()
    source.ledger.grew(now_ms - 60_000, [(("orders", p), 1_000) for p in range(6)])
    half = REBALANCES // 2
    for number in range(1, half + 1):
        rebalance(source, "busy", number, now_ms - (half - number) * 1_700 - 1_000)
    each = half // (GROUPS - 1)
    for i in range(GROUPS - 1):
        for number in range(1, each + 1):
            rebalance(source, f"group-{i:04d}", number, now_ms - (each - number) * 600_000 - i * 100)
        source.ledger.commit(f"group-{i:04d}", ("orders", i % 6), 900 + i % 100, now_ms - 5_000)
    return source


def opened(driver: Any, console: Running) -> Any:
    """A page whose table has been opened twice: cold in a browser that has just been started, and again."""
    browser = driver.chromium.launch(executable_path=chromium(), args=FLAGS)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(TABLE_PAINTED)
    for what in ("first", "again"):
        began = time.perf_counter()
        page.goto(console.url)
        page.wait_for_selector("tbody tr")
        took_ms = (time.perf_counter() - began) * 1000
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1")
        while not page.evaluate("window.tablePainted"):
            page.wait_for_timeout(10)
        table = page.evaluate("tablePainted")
        print(
            f"groups, {what} open: anything {painted:,.0f}, the table {table:,.0f} ms after the navigation began;",
            end="",
        )
        print(f" seen from outside after {took_ms:,.0f} ms")
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=0, help="live rebalances, to see the memory: 3600 are an hour")
    parser.add_argument("--opens", type=int, default=3, help="browsers, one after another, to see the first paint")
    options = parser.parse_args()
    source = filled()
    made = sum(len(past.history().rebalances) for past in source.ledger.groups.values())
    print(f"{len(source.ledger.groups):,} groups, {made:,} rebalances")
    with Running(lambda: source) as console, sync_playwright() as driver:
        console.get("groups")  # as a console that has been running has made its rows
        for _ in range(options.opens - 1):
            opened(driver, console).context.browser.close()
        page = opened(driver, console)
        began = time.perf_counter()
        now_ms = source.now_ms()
        page.goto(f"{console.url}/?group=busy&from={now_ms - 86_400_000}&to={now_ms}")
        while not page.evaluate("window.kohortTimeline?.data?.painted > 0"):
            page.wait_for_timeout(10)
        bars = page.evaluate("kohortTimeline.data.bars.lane.length")
        print(f"busy: {bars:,} bars after {(time.perf_counter() - began) * 1000:,.0f} ms")
        for act in ("pan", "zoom"):
            seen = page.evaluate(FRAMES, act)
            print(f"{act}: {seen['fps']:.0f} frames/s, slowest {seen['slowest']:.0f} ms, {seen['painted']:,} painted")
        if options.updates:
            app.TICK_S = 0.01
            memory(page, source, console, options.updates)
        page.context.browser.close()


def memory(page: Any, source: Clocked, console: Running, updates: int) -> None:
    """A rebalance a second in the group that is looked at; every one reaches the page before the next happens."""
    session = page.context.new_cdp_session(page)
    number = REBALANCES // 2

    def news() -> None:
        source.ahead_ms += 1_000
        rebalance(source, "busy", number, source.now_ms() - 80)

    for what, path in (("the timeline", "/?group=busy"), ("the table", "/")):
        page.goto(console.url + path)
        page.wait_for_selector("canvas" if "group" in path else "tbody tr")
        for count in range(updates + 1):
            if count % max(1, updates // 6) == 0:
                session.send("HeapProfiler.collectGarbage")
                heap = session.send("Runtime.getHeapUsage")["usedSize"] / 1e6
                nodes = session.send("Memory.getDOMCounters")
                print(
                    f"{what}, {count:,} live rebalances: {heap:.1f} MB in the page, {nodes['nodes']:,} nodes, ", end=""
                )
                print(f"{nodes['jsEventListeners']} listeners", flush=True)
            number += 1
            with page.expect_response(lambda answer: "/api/group" in answer.url):
                console._loop.call_soon_threadsafe(news)


if __name__ == "__main__":
    main()
