"""What the demo looks like: one frame drawn from one view of the group. Only drawing; nothing here waits or decides."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.align import Align
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kohort.coordinator.causes import CauseKind
from kohort.demo.watch import View
from kohort.demo.words import STATES
from kohort.insight.rebalances import Rebalance

GLOW_S = 0.8
PATH = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable")
ARROWS = {("Empty", "PreparingRebalance"): "─▶", ("PreparingRebalance", "CompletingRebalance"): "◀▶",
          ("CompletingRebalance", "Stable"): "─▶"}  # fmt: skip
LIT = {"Empty": "grey70", "PreparingRebalance": "yellow", "CompletingRebalance": "bright_cyan", "Stable": "green"}
TONES = {"good": "green", "bad": "red", "warn": "yellow", "": ""}
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")
NARROW = 84
TALL, SHORT = 11, 7  # of members and rebalances, in lines


@dataclass(slots=True)
class Scene:
    """What a frame shows besides the group."""

    title: str
    step: str = ""
    text: str = ""
    sold: int = 0
    began: float = field(default_factory=time.monotonic)
    colours: dict[str, str] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    """Processes that are no more, by name: how they went."""

    def colour(self, name: str) -> str:
        return self.colours.setdefault(name, COLOURS[len(self.colours) % len(COLOURS)])


def frame(scene: Scene, view: View, width: int, height: int) -> RenderableType:
    now = time.monotonic()
    head = Text.assemble(("▌", "cyan"), (f" {scene.title}", "bold"), (f"   {now - scene.began:5.1f} s", "dim"))
    caption = Text.assemble((f" {scene.step} ", "bold black on cyan"), "  ", (scene.text, "bold"))
    middle = Table.grid(expand=True, padding=(0, 1))
    middle.add_column(ratio=9)
    middle.add_column(ratio=11)
    left = height - 11 - len(caption) // max(width, 1)
    tall = min(TALL, max(left - 4, SHORT))
    middle.add_row(_members(scene, view, tall), _timeline(scene, view, tall))
    shown: list[RenderableType] = [head, Text(), caption, Text(), _states(view, now, width), middle]
    if left - tall - 3 > 0:
        shown.append(_log(view, left - tall - 3))
    return Group(*shown)


def _states(view: View, now: float, width: int) -> RenderableType:
    cells: list[RenderableType] = []
    for index, state in enumerate(PATH):
        cells.append(_state(state, view, now, boxed=width >= NARROW))
        if index + 1 < len(PATH):
            arrow = ARROWS[(state, PATH[index + 1])]
            cells.append(Text(f"\n{arrow}" if width >= NARROW else f" {arrow} ", style="dim"))
    grid = Table.grid(padding=(0, 0))
    grid.add_row(*cells)
    back = Text("Stable ─▶ PreparingRebalance whenever somebody joins, leaves or falls silent", style="dim")
    meaning = Text.assemble((view.state, "bold"), f": {STATES[view.state]}")
    title = f"[bold]group {view.group_id}[/]  generation {view.generation}"
    return Panel(Group(Align.center(grid), Align.center(meaning), Align.center(back)), title=title, border_style="dim")


def _state(state: str, view: View, now: float, boxed: bool) -> RenderableType:
    lit = view.state == state
    warm = not lit and now - view.seen.get(state, -GLOW_S) < GLOW_S
    colour = LIT[state]
    style = f"bold black on {colour}" if lit else (f"bold {colour}" if warm else "dim")
    text = Text(f" {state} ", style=style)
    return Panel(text, padding=0, expand=False, border_style=colour if lit or warm else "dim") if boxed else text


def _members(scene: Scene, view: View, height: int) -> RenderableType:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("member")
    table.add_column("reads partitions")
    table.add_column("lag", justify="right")
    for member in view.members:
        colour = scene.colour(member.name)
        gone = scene.gone.get(member.name)
        name = Text.assemble((member.name, f"bold {colour}"), (" ★" if member.leader else "", "yellow"))
        if gone:
            name = Text.assemble((member.name, "strike red"), (f" {gone}", "red"))
        table.add_row(name, Text(" ".join(map(str, member.partitions)) or "–", style=colour), f"{member.lag:,}")
    if view.unowned and view.members:
        table.add_row(Text("nobody", style="dim"), Text(" ".join(map(str, view.unowned)), style="dim"), "")
    orders = Text(f"{scene.sold:,} orders sold, {view.lag:,} wait to be read", style="dim")
    note = Text("★ leads: divides the partitions for all", style="dim")
    return Panel(Group(table, Text(), orders, note), title="members", border_style="dim", height=height)


def _timeline(scene: Scene, view: View, height: int) -> RenderableType:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("gen.", justify="right", no_wrap=True)
    table.add_column("stood still", justify="right", no_wrap=True)
    table.add_column("because", ratio=1)
    for rebalance in view.rebalances[3 - height :]:
        still = "…" if rebalance.standstill_ms is None else f"{rebalance.standstill_ms:,} ms"
        generation = "…" if rebalance.open else str(rebalance.generation)
        table.add_row(generation, still, Text(cause_of(rebalance), overflow="ellipsis", no_wrap=True))
    return Panel(table, title="rebalances", border_style="dim", height=height)


def cause_of(rebalance: Rebalance) -> str:
    """What set it off, in words: the first cause of each member."""
    said: dict[str, str] = {}
    for trigger in rebalance.triggers:
        who = "" if trigger.who is None else trigger.who.instance_id or trigger.who.client_id or trigger.who.member_id
        closed = trigger.kind is CauseKind.LEFT and trigger.cause.said == "the consumer is being closed"
        said.setdefault(who, "left" if closed else trigger.text)
    return "; ".join(f"{who} {text}".strip() for who, text in said.items())


def _log(view: View, count: int) -> RenderableType:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, style="dim cyan", width=16)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    shown = view.lines[-count:]
    for line in shown:
        table.add_row(line.step, Text(line.text, style=TONES[line.tone]))
    for _ in range(count - len(shown)):
        table.add_row("", "")
    return Panel(table, title="what the coordinator says", border_style="dim")
