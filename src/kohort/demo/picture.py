"""Recorded frames as one animated SVG: text stays text, CSS plays it, there is no script and no font to load.

Equal rows are drawn once and used again, which keeps a recording small.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise
from pathlib import Path

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

Row = list[Segment]

CELL_W, CELL_H, FONT = 8.4, 18.0, 14
PAD, BAR = 14, 34
LAST_FRAME_S = 4.0
LONGEST_FRAME_S = 2.0
THEME = TerminalTheme(
    (18, 22, 30),
    (214, 219, 229),
    [(40, 46, 58), (239, 106, 106), (126, 204, 121), (232, 196, 96), (104, 160, 240), (200, 140, 230), (90, 200, 220),
     (200, 205, 215)],
    [(96, 104, 120), (255, 130, 130), (150, 225, 145), (250, 215, 120), (130, 180, 255), (220, 165, 250),
     (120, 225, 245), (240, 242, 248)],
)  # fmt: skip


def write_picture(frames: list[tuple[float, list[Row]]], path: Path, title: str) -> None:
    path.write_text(picture(frames, title), encoding="utf-8")


def picture(frames: list[tuple[float, list[Row]]], title: str) -> str:
    """`frames` are (seconds since the beginning, rows)."""
    if not frames:
        raise ValueError("nothing was recorded")
    columns = max(sum(s.cell_length for s in row) for _, rows in frames for row in rows)
    lines = max(len(rows) for _, rows in frames)
    width, height = columns * CELL_W + 2 * PAD, lines * CELL_H + 2 * PAD + BAR
    drawn: dict[str, str] = {}
    shown = [[_row(row, drawn) for row in rows] for _, rows in frames]
    stills, spans = _merge(shown, [at for at, _ in frames])
    total = sum(spans)
    body, rules, clock = [], [], 0.0
    for number, (rows, span) in enumerate(zip(stills, spans, strict=True)):
        uses = "".join(f'<use href="#{name}" y="{index * CELL_H:g}"/>' for index, name in enumerate(rows) if name)
        body.append(f'<g class="f f{number}">{uses}</g>')
        begin, end = 100 * clock / total, 100 * (clock + span) / total
        rules.append(_keyframes(number, begin, end, total, last=number + 1 == len(stills)))
        clock += span
    defs = "".join(f'<g id="{name}">{markup}</g>' for markup, name in drawn.items())
    return _page(width, height, title, "".join(rules), defs, "".join(body))


def _merge(shown: list[list[str]], times: list[float]) -> tuple[list[list[str]], list[float]]:
    """Frames that look the same become one; long stills are shortened."""
    stills: list[list[str]] = []
    begins: list[float] = []
    for rows, at in zip(shown, times, strict=True):
        if not stills or rows != stills[-1]:
            stills.append(rows)
            begins.append(at)
    spans = [min(after - before, LONGEST_FRAME_S) for before, after in pairwise(begins)]
    return stills, [*spans, LAST_FRAME_S]


def _keyframes(number: int, begin: float, end: float, total: float, last: bool) -> str:
    """Shown from `begin` to `end` percent of the loop; the last frame is what a viewer without animation sees."""
    steps = f"0%{{opacity:{int(begin == 0)}}}{begin:.3f}%{{opacity:1}}"
    if not last:
        steps += f"{end:.3f}%,100%{{opacity:0}}"
    return (
        f"@keyframes k{number}{{{steps}}}"
        f".f{number}{{opacity:{int(last)};animation:k{number} {total:.2f}s step-end infinite}}"
    )


def _row(row: Row, drawn: dict[str, str]) -> str:
    markup = _markup(row)
    if not markup:
        return ""
    return drawn.setdefault(markup, f"r{len(drawn)}")


def _markup(row: Row) -> str:
    parts: list[str] = []
    column = 0
    for text, style, control in row:
        if control or not text:
            continue
        style = style or Style.null()
        front, back = _colours(style)
        cells = Segment(text).cell_length
        x, wide = column * CELL_W, cells * CELL_W
        if back is not None:
            parts.append(f'<rect x="{x:g}" width="{wide:g}" height="{CELL_H:g}" fill="{back}"/>')
        if text.strip():
            lead = len(text) - len(text.lstrip())
            body = text.strip()
            at, long = x + lead * CELL_W, Segment(body).cell_length * CELL_W
            parts.append(
                f'<text x="{at:g}" y="{CELL_H * 0.74:g}" textLength="{long:g}" fill="{front}"{_looks(style)}>'
                f"{escape(body).replace(' ', chr(160))}</text>"
            )
        column += cells
    return "".join(parts)


def _colours(style: Style) -> tuple[str, str | None]:
    front = _rgb(style.color, THEME.foreground_color, True)
    back = None if style.bgcolor is None or style.bgcolor.is_default else _rgb(style.bgcolor, None, False)
    if style.dim:
        front = _mixed(front)
    return (back or _hex(THEME.background_color), front) if style.reverse else (front, back)


def _rgb(colour: Color | None, default: tuple[int, int, int] | None, foreground: bool) -> str:
    if colour is None or colour.is_default:
        return _hex(default or THEME.background_color)
    return _hex(tuple(colour.get_truecolor(THEME, foreground)))  # type: ignore[arg-type]


def _hex(rgb: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def _mixed(colour: str) -> str:
    back = THEME.background_color
    front = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return _hex(tuple(round(0.55 * f + 0.45 * b) for f, b in zip(front, back, strict=True)))  # type: ignore[arg-type]


def _looks(style: Style) -> str:
    looks = ' font-weight="bold"' if style.bold else ""
    return looks + (' text-decoration="line-through"' if style.strike else "")


def _page(width: float, height: float, title: str, rules: str, defs: str, body: str) -> str:
    dots = "".join(
        f'<circle cx="{20 + 18 * i}" cy="{BAR / 2:g}" r="5.5" fill="{c}"/>'
        for i, c in enumerate(("#ef6a6a", "#e8c460", "#7ecc79"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"<style>text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}}"
        f"@media (prefers-reduced-motion:reduce){{.f{{animation:none!important}}}}{rules}</style>"
        f'<rect width="100%" height="100%" rx="9" fill="{_hex(THEME.background_color)}"/>{dots}'
        f'<text x="{width / 2:g}" y="{BAR / 2 + 5:g}" text-anchor="middle" fill="#8a93a5">$ {escape(title)}</text>'
        f'<defs>{defs}</defs><g transform="translate({PAD},{BAR + PAD / 2:g})">{body}</g></svg>\n'
    )
