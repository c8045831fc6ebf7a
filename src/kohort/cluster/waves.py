"""How many questions a store is asked at a time: more as long as it is quick, fewer where it is slow or fails.

A store that answers one after the other, however many ask, would else let the last of them wait until it gives up, and
all would be asked again for ever. No input or output here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kohort.cluster.engine import EngineError

T = TypeVar("T")
Question = Callable[[], T]

FIRST, MOST = 8, 64
SLOW_S = 1.0
"""A wave that takes longer was too large: well below the time after which a request is given up."""


def in_waves(
    questions: Sequence[Question[T]],
    ask: Callable[[Sequence[Question[T]]], Sequence[T | EngineError]],
    now_s: Callable[[], float],
) -> Sequence[T]:
    """The answers in order. `ask` puts some questions at a time. Where some of them fail these are put again; where all
    do, the store is out of reach, and that is told."""
    answers: dict[int, T] = {}
    left = list(range(len(questions)))
    width = FIRST
    while left:
        wave, left = left[:width], left[width:]
        began_s = now_s()
        failed: list[int] = []
        for number, answer in zip(wave, ask([questions[number] for number in wave]), strict=True):
            if isinstance(answer, EngineError):
                failed.append(number)
                if len(failed) == len(wave):
                    raise answer
            else:
                answers[number] = answer
        is_slow = failed or now_s() - began_s > SLOW_S
        width = max(width // 2, 1) if is_slow else min(2 * width, MOST)
        left = failed + left
    return [answers[number] for number in range(len(questions))]
