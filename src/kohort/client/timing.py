"""Backoff and the three deadlines of a member: session, heartbeat, poll interval. Time is an argument."""

from __future__ import annotations

from collections.abc import Callable

JITTER = 0.2


class Backoff:
    """Waits that double from `initial_ms` to `max_ms`, 20 % up or down by chance. `uniform` gives numbers in [0, 1)."""

    __slots__ = ("_attempts", "_initial_ms", "_max_ms", "_uniform")

    def __init__(self, initial_ms: int, max_ms: int, uniform: Callable[[], float]) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)
        self._uniform = uniform
        self._attempts = 0

    def reset(self) -> None:
        self._attempts = 0

    def next_ms(self) -> int:
        wait = min(self._initial_ms * 2 ** min(self._attempts, 30), self._max_ms)
        self._attempts += 1
        return int(wait * (1 - JITTER + 2 * JITTER * self._uniform()))


class Heartbeat:
    """When the next heartbeat is due, when the session ends without an answer, when the application polls too late."""

    __slots__ = (
        "_backing_off_until_ms",
        "_backoff",
        "_max_poll_interval_ms",
        "_session_timeout_ms",
        "in_flight",
        "interval_ms",
        "last_answer_ms",
        "last_heard_ms",
        "last_poll_ms",
        "next_ms",
    )

    def __init__(self, interval_ms: int, session_timeout_ms: int, max_poll_interval_ms: int, backoff: Backoff) -> None:
        self.interval_ms = interval_ms
        self._session_timeout_ms = session_timeout_ms
        self._max_poll_interval_ms = max_poll_interval_ms
        self._backoff = backoff
        self._backing_off_until_ms = 0
        self.in_flight: int | None = None
        self.next_ms = 0
        self.last_answer_ms = 0
        self.last_heard_ms = 0
        self.last_poll_ms = 0

    def start(self, now_ms: int) -> None:
        """Joined: heartbeats and the session begin anew. The poll interval does not: only polls renew it."""
        self.in_flight = None
        self._backoff.reset()
        self.next_ms = now_ms + self.interval_ms
        self.last_answer_ms = self.last_heard_ms = now_ms

    def sent(self, token: int, now_ms: int) -> None:
        self.in_flight = token
        self.next_ms = now_ms + self.interval_ms

    def answered(self, now_ms: int) -> None:
        self.in_flight = None
        self._backoff.reset()
        self.last_answer_ms = self.last_heard_ms = now_ms

    def failed(self, now_ms: int) -> None:
        self.in_flight = None
        self.next_ms = self._backing_off_until_ms = now_ms + self._backoff.next_ms()

    def every(self, interval_ms: int, now_ms: int) -> None:
        """The coordinator says how often (KIP-848)."""
        if interval_ms > 0 and interval_ms != self.interval_ms:
            self.interval_ms = interval_ms
            self.next_ms = now_ms + interval_ms

    def hasten(self, now_ms: int) -> None:
        """There is something to say: now, or when the backoff of the last failure is over."""
        self.next_ms = min(self.next_ms, max(now_ms, self._backing_off_until_ms))

    def session_renewed(self, now_ms: int) -> None:
        """A coordinator was found: it gets the whole session timeout to answer."""
        self.last_answer_ms = now_ms

    @property
    def session_ends_ms(self) -> int:
        return self.last_answer_ms + self._session_timeout_ms

    @property
    def poll_ends_ms(self) -> int:
        return self.last_poll_ms + self._max_poll_interval_ms
