"""Who has given no sign of life for too long, by the clock of whoever watches. A guess: safety never rests on it."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.cluster import names


class Liveness:
    """Counts the silence of each broker over looks at the store. Time in which nobody looked is nobody's silence."""

    def __init__(self, longest_gap_ms: int) -> None:
        self._longest_gap_ms = longest_gap_ms
        self._beats: dict[str, int] = {}
        self._silence_ms: dict[str, int] = {}
        self._looked_ms: int | None = None

    def looked(self, found: Iterable[str], expected: Iterable[str], now_ms: int) -> None:
        """What was found in alive/, and which lives of brokers should be there."""
        gap_ms = 0 if self._looked_ms is None else min(max(now_ms - self._looked_ms, 0), self._longest_gap_ms)
        self._looked_ms = now_ms
        beats: dict[str, int] = {}
        for journal, beat in map(names.beat, found):
            beats[journal] = max(beat, beats.get(journal, -1))
        silence: dict[str, int] = {}
        for journal in expected:
            beat = max(beats.get(journal, -1), self._beats.get(journal, -1))
            fresh = journal not in self._silence_ms or beat != self._beats.get(journal, -1)
            silence[journal] = 0 if fresh else self._silence_ms[journal] + gap_ms
            self._beats[journal] = beat
        self._silence_ms = silence
        self._beats = {journal: self._beats[journal] for journal in silence}

    def silent(self, longer_than_ms: int) -> dict[str, int]:
        """Lives of brokers that were silent for so long, and for how long."""
        return {journal: ms for journal, ms in self._silence_ms.items() if ms >= longer_than_ms}
