"""Results as tables: plain text for people, JSON for programs. Nothing here measures."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field


@dataclass
class Row:
    """One measure of both sides; `goal` says what was aimed at, in words."""

    name: str
    unit: str
    kohort: float | None = None
    kafka: float | None = None
    lower_is_better: bool = True
    goal: str = ""

    @property
    def factor(self) -> float | None:
        """How many times better kohort is; below 1 it is worse."""
        if not self.kohort or not self.kafka:
            return None
        return self.kafka / self.kohort if self.lower_is_better else self.kohort / self.kafka


@dataclass
class Table:
    title: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def put(
        self, side: str, name: str, value: float, unit: str, *, lower_is_better: bool = True, goal: str = ""
    ) -> None:
        """Record one side's value and say so; the row is made at its first mention."""
        print(f"  {side}: {name}, {number(value)} {unit}", file=sys.stderr, flush=True)
        row = next((row for row in self.rows if row.name == name and row.unit == unit), None)
        if row is None:
            row = Row(name, unit, lower_is_better=lower_is_better, goal=goal)
            self.rows.append(row)
        setattr(row, side, value)

    def as_text(self) -> str:
        head = ("", "unit", "kohort", "Apache Kafka", "kohort is", "goal")
        lines = [head, *(self._cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        aligned = [
            "  ".join(
                cell.ljust(w) if i in (0, 1, 5) else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        rule = "-" * max(map(len, aligned))
        text = [self.title, rule, aligned[0], rule, *aligned[1:], rule, *(f"  {note}" for note in self.notes)]
        return "\n".join(line.rstrip() for line in text)

    @staticmethod
    def _cells(row: Row) -> tuple[str, ...]:
        factor = (
            ""
            if row.factor is None
            else f"{row.factor:.2f}x better"
            if row.factor >= 1
            else f"{1 / row.factor:.2f}x worse"
        )
        return (row.name, row.unit, number(row.kohort), number(row.kafka), factor, row.goal)

    def as_json(self) -> dict[str, object]:
        return {
            "title": self.title,
            "rows": [asdict(row) | {"factor": row.factor} for row in self.rows],
            "notes": self.notes,
        }


def number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
