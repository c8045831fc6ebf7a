"""Client quotas as Kafka keeps and applies them: who may how much, what was used lately, how long to wait. Pure but for
the store that keeps them.

A quota belongs to a user, a client id, both, or (connections) an address; None stands for the default. The most exact
one counts. Use is measured over eleven samples of a second; whoever is over is told to wait until the average is right
again, and is not read from meanwhile.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.storage.store import Store

DOCUMENT = "kohort.quotas.json"
USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUEST_TIME, CONNECTIONS = "request_percentage", "connection_creation_rate"
MUTATIONS = "controller_mutation_rate"
SAMPLES = 11
SAMPLE_MS = 1000
MOST_THROTTLE_OF_TIME_MS = SAMPLE_MS
_MOST_RATES = 10_000

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) in the order of types; a name of None is the default."""
Who = tuple[str | None, str | None]


class Rate:
    """Kafka's rate: the sum of the samples over the time they span, of ten seconds at least."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()

    def record(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= SAMPLE_MS:
            samples.append([now_ms, 0.0])
            if len(samples) > SAMPLES:
                samples.popleft()
        samples[-1][1] += value

    def over(self, bound: float, now_ms: int) -> float:
        """Milliseconds to wait until the average is down to `bound`; 0 where it is."""
        samples = self._samples
        while samples and now_ms - samples[0][0] >= SAMPLES * SAMPLE_MS:
            samples.popleft()
        if not samples:
            return 0.0
        window_ms = now_ms - samples[0][0]
        missing = SAMPLES - 1 - window_ms // SAMPLE_MS
        window_ms += max(missing, 0) * SAMPLE_MS
        rate = sum(value for _, value in samples) * 1000 / window_ms
        return (rate - bound) / bound * window_ms if rate > bound else 0.0

    def is_idle(self, now_ms: int) -> bool:
        return not self._samples or now_ms - self._samples[-1][0] >= SAMPLES * SAMPLE_MS


class TokenBucket:
    """Kafka's for changes of topics: filled at the allowed rate, full with what is allowed in all samples together."""

    __slots__ = ("_last_ms", "tokens")

    def __init__(self) -> None:
        self.tokens = 0.0
        self._last_ms = 0

    def wait_ms(self, bound: float, now_ms: int) -> int:
        """Until it is not overdrawn any more; 0 where it is not."""
        self.tokens = min(SAMPLES * SAMPLE_MS / 1000 * bound, self.tokens + bound * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms
        return round(-self.tokens / bound * 1000) if self.tokens < 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        return now_ms - self._last_ms >= SAMPLES * SAMPLE_MS and self.tokens >= 0


class Quotas:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.limits: dict[Entity, dict[str, float]] = {}
        self.active = False
        self._rates: dict[tuple[str, Who], Rate] = {}
        self._buckets: dict[Who, TokenBucket] = {}
        self._found: dict[tuple[str, str, str], tuple[float, Who] | None] = {}

    def load(self) -> None:
        """What is kept, in place of what is known of it."""
        data = self._store.read_file(DOCUMENT)
        limits: dict[Entity, dict[str, float]] = {}
        try:
            for row in json.loads(data)["quotas"] if data is not None else ():
                entity = tuple(sorted((str(kind), name) for kind, name in row["entity"].items()))
                limits[entity] = {str(key): float(value) for key, value in row["limits"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{DOCUMENT} in the data directory is damaged: restore it from a copy, or move it away and set the "
                "quotas again",
            ) from None
        self.limits = limits
        self._changed()

    def change(self, changes: Mapping[Entity, Mapping[str, float | None]]) -> None:
        """Stored, then in effect; a limit of None is removed."""
        limits = {entity: dict(values) for entity, values in self.limits.items()}
        for entity, values in changes.items():
            new = limits.setdefault(entity, {})
            for key, value in values.items():
                if value is None:
                    new.pop(key, None)
                else:
                    new[key] = value
            if not new:
                del limits[entity]
        rows = [{"entity": dict(entity), "limits": values} for entity, values in limits.items()]
        self._store.write_file(DOCUMENT, json.dumps({"quotas": rows}).encode())
        self.limits = limits
        self._changed()

    def _changed(self) -> None:
        self.active = bool(self.limits)
        self._found.clear()

    # Use.

    def throttle_ms(self, key: str, principal: str | None, client_id: str | None, used: float, now_ms: int) -> int:
        """Takes note of what was used; how long its user has to wait, in milliseconds."""
        found = self._limit(key, (principal or "").removeprefix("User:"), client_id or "")
        if found is None:
            return 0
        return self._use(key, found, used, now_ms)

    def connection_throttle_ms(self, host: str, now_ms: int) -> int:
        for name in (host, None):
            bound = self.limits.get(((IP, name),), {}).get(CONNECTIONS)
            if bound is not None:
                return self._use(CONNECTIONS, (bound, (host, None)), 1, now_ms)
        return 0

    def _use(self, key: str, found: tuple[float, Who], used: float, now_ms: int) -> int:
        bound, who = found
        rate = self._rates.get((key, who))
        if rate is None:
            if len(self._rates) >= _MOST_RATES:
                self._rates = {one: rate for one, rate in self._rates.items() if not rate.is_idle(now_ms)}
            rate = self._rates[key, who] = Rate()
        if used:
            rate.record(used, now_ms)
        wait_ms = rate.over(bound, now_ms)
        if key == REQUEST_TIME:
            wait_ms = min(wait_ms, MOST_THROTTLE_OF_TIME_MS)
        return round(wait_ms)

    def mutate(
        self, principal: str | None, client_id: str | None, partitions: int, now_ms: int, *, strict: bool
    ) -> tuple[bool, int]:
        """Whether so many partitions may be made or removed, and how long to wait. Who is not `strict` may at once."""
        found = self._limit(MUTATIONS, (principal or "").removeprefix("User:"), client_id or "")
        if found is None:
            return True, 0
        bound, who = found
        bucket = self._buckets.get(who)
        if bucket is None:
            if len(self._buckets) >= _MOST_RATES:
                self._buckets = {who: one for who, one in self._buckets.items() if not one.is_idle(now_ms)}
            bucket = self._buckets[who] = TokenBucket()
        wait_ms = bucket.wait_ms(bound, now_ms)
        if strict and wait_ms:
            return False, wait_ms
        bucket.tokens -= partitions
        return True, 0 if strict else bucket.wait_ms(bound, now_ms)

    def give_back(self, key: str, principal: str | None, client_id: str | None, used: float, now_ms: int) -> None:
        """What was counted and then not sent."""
        found = self._limit(key, (principal or "").removeprefix("User:"), client_id or "")
        if found is not None and (rate := self._rates.get((key, found[1]))) is not None:
            rate.record(-used, now_ms)

    def _limit(self, key: str, user: str, client_id: str) -> tuple[float, Who] | None:
        """The limit that counts, and who shares it."""
        asked = (key, user, client_id)
        if asked in self._found:
            return self._found[asked]
        if len(self._found) >= _MOST_RATES:
            self._found.clear()
        found = None
        for entity, who in _candidates(user, client_id):
            bound = self.limits.get(entity, {}).get(key)
            if bound is not None:
                found = bound, who
                break
        self._found[asked] = found
        return found


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, Who]]:
    """From the most exact to the most general; those of a user share theirs, and so do those of a client id."""
    for name in (user, None):
        for client in (client_id, None):
            yield ((CLIENT_ID, client), (USER, name)), (user, client_id)
        yield ((USER, name),), (user, None)
    for client in (client_id, None):
        yield ((CLIENT_ID, client),), (None, client_id)
