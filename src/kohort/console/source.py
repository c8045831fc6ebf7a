"""What the web side asks of a source, live or kept; and the notices that a source has for its reader."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kohort.insight.ledger import Ledger


class Notice(NamedTuple):
    """What is wrong or missing, and what to do about it."""

    severity: str  # "problem", "warning", "note"
    text: str
    advice: str = ""


@dataclass(slots=True)
class Source:
    """A ledger that somebody fills. `what` names it for people; `notices` are by topic, the latest of each."""

    ledger: Ledger = field(default_factory=Ledger)
    what: str = ""
    live: bool = False
    notices: dict[str, Notice] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)
    progress: float | None = None  # of the first reading; None once it is done

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    async def run(self) -> None:
        """Until it is cancelled."""

    async def look_at(self, group_id: str) -> None:
        """Somebody opened this group: learn what can be learned of it now."""

    def notice(self, about: str, severity: str, text: str, advice: str = "") -> None:
        self.notices[about] = Notice(severity, text, advice)

    def status(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "live": self.live,
            "now_ms": self.now_ms(),
            "progress": self.progress,
            "revision": self.ledger.revision,
            "records": self.ledger.records,
            "notices": [notice._asdict() for notice in self.notices.values()],
        }
