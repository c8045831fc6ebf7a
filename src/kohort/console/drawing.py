"""A timeline as SVG, for an export and for reports: the values that the page draws. Pure; all names are escaped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from typing import Any

WIDTH, MARGIN, NAMES = 1200, 16, 190
LANE, GAP, CHART = 26, 6, 90
PALETTE = ("#4f8ef7", "#e5844b", "#3fb27f", "#b07cf0", "#e05d7b", "#2fb3c7", "#c9a227", "#8a99ad", "#d16ec0", "#6fae3c")
BAND, ESTIMATED = "#d9364f", "#d98f36"
LEAST_PX = 0.15
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1c2430}.quiet{fill:#5a6675}.line{stroke:#ccd3dc}"
    ".page{fill:#fff}.lane{fill:#f3f5f8}"
    "@media(prefers-color-scheme:dark){text{fill:#e6ebf2}.quiet{fill:#9aa7b8}.line{stroke:#36404e}"
    ".page{fill:#12161c}.lane{fill:#1b212a}}"
)


def timeline_svg(view: dict[str, Any], width: int = WIDTH) -> str:
    from_ms, to_ms = view["from_ms"], view["to_ms"]
    lanes = _used_lanes(view)
    top = 64
    bottom = top + len(lanes) * (LANE + GAP)
    left, right = MARGIN + NAMES, width - MARGIN
    height = bottom + CHART + 60

    def x(at_ms: float) -> float:
        share: float = (min(max(at_ms, from_ms), to_ms) - from_ms) / (to_ms - from_ms)
        return left + share * (right - left)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{safe(_title(view))}"><style>{STYLE}</style>'
        f'<rect class="page" width="{width}" height="{height}"/>',
        _text(MARGIN, 26, _title(view), size=16),
        _text(MARGIN, 46, _subtitle(view), quiet=True),
    ]
    for row, lane in enumerate(lanes):
        y = top + row * (LANE + GAP)
        parts.append(f'<rect class="lane" x="{left}" y="{y}" width="{right - left}" height="{LANE}"/>')
        parts.append(_text(MARGIN, y + 17, _short(view["lanes"][lane]["name"])))
    place = {lane: top + row * (LANE + GAP) for row, lane in enumerate(lanes)}
    parts += _bars(view, x, place)
    parts += _bands(view, x, top - 6, bottom)
    parts += _series(view, x, bottom + 10, left)
    parts += _axis(from_ms, to_ms, x, bottom + CHART + 30)
    return "".join([*parts, "</svg>"])


def safe(text: str) -> str:
    """A name from Kafka as text of a document: no markup, nothing that is not allowed in XML or turns it around."""
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def _used_lanes(view: dict[str, Any]) -> list[int]:
    return sorted(set(view["bars"]["lane"]))


def _title(view: dict[str, Any]) -> str:
    return f"Group {view['group']}"


def _subtitle(view: dict[str, Any]) -> str:
    how = "exact" if view["exact"] else "estimated"
    return f"{clock(view['from_ms'])} to {clock(view['to_ms'])} UTC, {how}, from {view['source']}"


def clock(at_ms: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return str(at_ms)  # a clock that jumped beyond the calendar


def _short(name: str, most: int = 26) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _text(x: float, y: float, text: str, quiet: bool = False, size: int = 12) -> str:
    kind = ' class="quiet"' if quiet else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{kind}>{safe(text)}</text>'


def colours(view: dict[str, Any]) -> dict[tuple[str, int], str]:
    """By partition, in the order of their names: the page does the same."""
    known = sorted({(topic, p) for one in view["bars"]["sets"] for topic, numbers in one for p in numbers})
    return {partition: PALETTE[i % len(PALETTE)] for i, partition in enumerate(known)}


def _bars(view: dict[str, Any], x: Any, place: dict[int, int]) -> Iterator[str]:
    bars, colour = view["bars"], colours(view)
    for lane, start, end, number in zip(bars["lane"], bars["start"], bars["end"], bars["set"], strict=True):
        x0, x1 = x(start), x(view["to_ms"] if end < 0 else end)
        if x1 - x0 < LEAST_PX:
            continue
        held = [(topic, p) for topic, numbers in bars["sets"][number] for p in numbers]
        stripe = LANE / len(held)
        for i, partition in enumerate(held):
            y = place[lane] + i * stripe
            yield (
                f'<rect x="{x0:.2f}" y="{y:.2f}" width="{x1 - x0:.2f}" height="{max(stripe - 0.5, 0.3):.2f}" '
                f'fill="{colour[partition]}"/>'
            )
        if x1 - x0 > 60:
            yield _text(x0 + 5, place[lane] + 17, _short(held_text(bars["sets"][number]), int((x1 - x0) / 7)))


def held_text(held: list[list[Any]]) -> str:
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in held)


def _bands(view: dict[str, Any], x: Any, top: int, bottom: int) -> Iterator[str]:
    bands, texts = view["bands"], view["texts"]
    for i, start in enumerate(bands["start"]):
        end = bands["end"][i]
        x0, x1 = x(start), x(view["to_ms"] if end < 0 else end)
        colour = BAND if bands["exact"][i] else ESTIMATED
        said = f"{clock(start)}: {texts[bands['text'][i]]}"
        yield (
            f'<rect x="{x0:.2f}" y="{top}" width="{max(x1 - x0, 1):.2f}" height="{bottom - top}" fill="{colour}" '
            f'fill-opacity="0.35"><title>{safe(said)}</title></rect>'
        )


def _series(view: dict[str, Any], x: Any, top: int, left: int) -> Iterator[str]:
    series = view["series"]
    yield _text(MARGIN, top + 14, "commits", quiet=True)
    most = max(series["commits"], default=0) or 1
    for at_ms, commits in zip(series["at"], series["commits"], strict=True):
        if commits and view["from_ms"] <= at_ms:
            height = max(1.0, 24 * commits / most)
            y = top + 26 - height
            yield f'<rect x="{x(at_ms):.2f}" y="{y:.2f}" width="2" height="{height:.2f}" fill="#8a99ad"/>'
    yield _text(MARGIN, top + 50, "lag", quiet=True)
    known = [(at, lag) for at, lag in zip(series["at"], series["lag"], strict=True) if lag >= 0]
    if known:
        highest = max(lag for _, lag in known) or 1
        points = " ".join(f"{x(at):.1f},{top + 84 - 46 * lag / highest:.1f}" for at, lag in known)
        yield f'<polyline points="{points}" fill="none" stroke="{PALETTE[0]}" stroke-width="1.5"/>'
        yield _text(MARGIN, top + 66, f"up to {highest:,}", quiet=True)


def _axis(from_ms: int, to_ms: int, x: Any, y: int) -> Iterator[str]:
    form = "%m-%d %H:%M" if to_ms - from_ms > 36 * 3_600_000 else "%H:%M:%S"
    for i in range(7):
        at_ms = from_ms + (to_ms - from_ms) * i // 6
        yield f'<line class="line" x1="{x(at_ms):.1f}" x2="{x(at_ms):.1f}" y1="{y - 20}" y2="{y - 14}"/>'
        yield _text(min(x(at_ms), WIDTH - 80) - (0 if i == 0 else 26), y, clock(at_ms, form), quiet=True)
