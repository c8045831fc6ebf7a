"""How a run is shown: live on a terminal, as plain lines anywhere else, and as frames for a picture."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from kohort.demo.screen import Scene, frame
from kohort.demo.watch import Watch
from kohort.demo.words import Line

FRAMES_PER_S = 10
RECORDED_PER_S = 4
RECORDED_SIZE = (100, 32)


class Show:
    """Plain lines, each with the seconds since the beginning: for pipes, files and CI."""

    def __init__(self, title: str) -> None:
        self.scene = Scene(title)
        self._watch: Watch | None = None
        self._sold: Callable[[], int] = lambda: 0
        self.recorder: Recorder | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Show:
        if self.recorder is not None:
            self.recorder.start(self.draw)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.recorder is not None:
            self.recorder.stop()

    def follow(self, title: str, watch: Watch, sold: Callable[[], int]) -> None:
        """Show this group from now on."""
        self.scene.title, self.scene.gone = title, {}
        self._watch, self._sold = watch, sold
        watch.on_line = self.line

    def step(self, step: str, text: str) -> None:
        """The script says what happens next."""
        self.scene.step, self.scene.text = step, text
        self._print(f"{self._seconds()}  {step:<16}  {text}")

    def line(self, line: Line) -> None:
        self._print(f"{self._seconds()}  {line.step:<16}    {line.text}")

    def part(self, heading: str) -> None:
        self._print(f"\n{heading}")

    def _seconds(self) -> str:
        return f"{time.monotonic() - self.scene.began:6.2f} s"

    def _print(self, text: str) -> None:
        with self._lock:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def draw(self, width: int, height: int) -> RenderableType:
        if self._watch is None:
            return ""
        self.scene.sold = self._sold()
        return frame(self.scene, self._watch.view(), width, height)

    def say(self, *lines: str) -> None:
        """Text of the summary, below everything."""
        print(*lines, sep="\n", flush=True)


class LiveShow(Show):
    """Redraws itself; the summary comes after the last frame."""

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self._console = Console()
        self._live: Live | None = None

    def _current(self) -> RenderableType:
        width, height = self._console.size
        return self.draw(width, height)

    def __enter__(self) -> Show:
        super().__enter__()
        self._live = Live(console=self._console, refresh_per_second=FRAMES_PER_S, get_renderable=self._current)
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._live is not None
        self._live.stop()
        super().__exit__(*exc)

    def _print(self, text: str) -> None:
        pass  # the frame has it

    def say(self, *lines: str) -> None:
        self._console.print(*lines, sep="\n", highlight=False, markup=False, soft_wrap=True)


class Recorder:
    """Draws real frames off screen, a few times a second, and keeps those that differ."""

    def __init__(self) -> None:
        width, height = RECORDED_SIZE
        self._console = Console(
            width=width, height=height, force_terminal=True, color_system="truecolor", legacy_windows=False
        )
        self._began = time.monotonic()
        self.frames: list[tuple[float, list[list[Segment]]]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, draw: Callable[[int, int], Any]) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._record, args=(draw,), name="recorder", daemon=True)
        self._thread.start()

    def _record(self, draw: Callable[[int, int], Any]) -> None:
        width, height = RECORDED_SIZE
        while not self._stop.wait(1 / RECORDED_PER_S):
            options = self._console.options.update(width=width, height=height)
            drawn = self._console.render_lines(draw(width, height), options, pad=False)
            lines = [list(Segment.simplify(line)) for line in drawn[:height]]
            if any(segment.text.strip() for line in lines for segment in line):
                self.frames.append((time.monotonic() - self._began, lines))

    def add_text(self, lines: list[str]) -> None:
        """A frame of plain text, such as the summary."""
        text = Text("\n".join(["", "", *lines]), overflow="fold")
        drawn = self._console.render_lines(text, self._console.options, pad=False)
        rows = [list(Segment.simplify(line)) for line in drawn[: RECORDED_SIZE[1]]]
        self.frames.append((time.monotonic() - self._began, rows))

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def make_show(title: str, plain: bool) -> Show:
    return Show(title) if plain or not sys.stdout.isatty() else LiveShow(title)
