"""A report as one HTML file: the groups, the worst first, with their timelines, findings and causes. No script in it.

Pure strings; every name from Kafka goes through `escape`, in one place each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kohort.console.drawing import clock, safe, timeline_svg
from kohort.insight.wording import human_ms

MOST_ROWS = 500
MOST_BANDS = 50
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root{color-scheme:light dark;--page:#fff;--text:#1c2430;--quiet:#5a6675;--line:#dfe4ea}
@media(prefers-color-scheme:dark){:root{--page:#12161c;--text:#e6ebf2;--quiet:#9aa7b8;--line:#2b3440}}
body{font:15px/1.5 system-ui,sans-serif;background:var(--page);color:var(--text);max-width:1240px}
body{margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin:1rem 0}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}.quiet{color:var(--quiet)}
.wide{overflow-x:auto}.problem{color:#c4243f}.warning{color:#9a6200}
@media(prefers-color-scheme:dark){.problem{color:#ff7b8e}.warning{color:#f0b35a}}
"""


def report_html(status: dict[str, Any], rows: Sequence[dict[str, Any]], timelines: Sequence[dict[str, Any]]) -> str:
    body = [
        "<h1>Why groups rebalance</h1>",
        f'<p class="quiet">{_e(status["what"])}, {_e(clock(status["now_ms"]))} UTC; {len(rows):,} groups.</p>',
        *(_notice(one) for one in status["notices"]),
        _groups(rows),
        *(_timeline(one) for one in timelines),
    ]
    return document("kohort: why groups rebalance", "".join(body))


def document(title: str, body: str) -> str:
    """A whole file; `body` is markup in which every name is escaped."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_e(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>"
    )


def _e(value: Any) -> str:
    return safe("-" if value is None or value == "" else str(value))


def _notice(one: dict[str, Any]) -> str:
    return f'<p class="{_e(one["severity"])}">{_e(one["text"])} {_e(one["advice"]) if one["advice"] else ""}</p>'


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = ()) -> str:
    def cell(name: str, i: int, text: str) -> str:
        return f"<{name}{' class=n' if i in numbers else ''}>{text}</{name}>"

    head = "".join(cell("th", i, _e(one)) for i, one in enumerate(columns))
    lines = ("".join(cell("td", i, _e(one)) for i, one in enumerate(row)) for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table></div>"
    )


def _groups(rows: Sequence[dict[str, Any]]) -> str:
    columns = ("group", "verdict", "state", "members", "lag", "behind", "rebalances / h", "standstill / h", "known")
    shown = [
        (
            row["group"],
            row["verdict"],
            row["state"],
            row["members"],
            None if row["lag"] is None else f"{row['lag']:,}",
            None if row["lag_ms"] is None else human_ms(row["lag_ms"]),
            row["rebalances_per_hour"],
            human_ms(row["standstill_ms_per_hour"]),
            "exactly" if row["exact"] else "estimated",
        )
        for row in rows[:MOST_ROWS]
    ]
    more = f'<p class="quiet">and {len(rows) - MOST_ROWS:,} more</p>' if len(rows) > MOST_ROWS else ""
    return f"<h2>Groups, the worst first</h2>{table(columns, shown, (3, 4, 5, 6, 7))}{more}"


def _timeline(view: dict[str, Any]) -> str:
    findings = "".join(
        f'<li><b class="{_e(one["severity"])}">{_e(one["kind"])}</b>: {_e(one["text"])} '
        f"<span class=quiet>{_e(one['advice'])}</span></li>"
        for one in view["findings"]
    )
    bands, texts = view["bands"], view["texts"]
    rows = [
        (
            clock(bands["start"][i]),
            bands["generation"][i] if bands["generation"][i] >= 0 else None,
            texts[bands["text"][i]],
            None if bands["standstill"][i] is None else human_ms(bands["standstill"][i]),
            "exactly" if bands["exact"][i] else "estimated, at most",
            bands["members"][i],
        )
        for i in range(len(bands["start"]))
    ][-MOST_BANDS:][::-1]
    columns = ("started", "generation", "cause", "stood still", "known", "members after")
    return (
        f"<h2>{_e(view['group'])}</h2>{timeline_svg(view)}"
        f"{f'<ul>{findings}</ul>' if findings else '<p class=quiet>Nothing harmful was found.</p>'}"
        f"{table(columns, rows, (1, 3, 5)) if rows else ''}"
    )
