"""What a test holds of an embedded broker: its time and its faults, from any thread. The broker itself is elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict, Unpack

from kohort.broker.client_requests import Action
from kohort.broker.clock import Clock
from kohort.broker.faults import ANY_API, DELAY, DISCONNECT, DROP, FAIL, Fault, Faults, Function
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.embedded import Broker

EVICTED = "evicted by the test"


class Whom(TypedDict, total=False):
    """Which requests a rule meets, and how often."""

    times: int | None
    after: int
    group: str | None
    client: str | None
    topic: str | None
    partition: int | None


class FaultError(RuntimeError):
    """A function given to `broker.fault` has failed; the cause is what it raised."""


def not_on_a_loop(what: str) -> None:
    """Refuse to block the event loop on which the consumers that are waited for may run."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{what} would stop this event loop while it waits: await asyncio.to_thread({what}, ...)")


class BrokerClock:
    """The broker's time."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def advance(self, seconds: float) -> None:
        """Let time pass for the broker at once; what is due by then has happened, and been answered, on return.

        Members that live did not send a heartbeat meanwhile either: to lose one member of several, give it a shorter
        session than the others and advance by no more than that.
        """
        self._broker._call_async(lambda running: running.server.advance(seconds))


class BrokerFaults:
    """Makes requests fail, wait or get lost.

        broker.faults.fail("OffsetCommit", code="COORDINATOR_NOT_AVAILABLE", times=2, group="orders")

    A rule meets requests of one api by Kafka's name ("*" is any), of a `group`, of a `client` (its client.id), or that
    are about a `topic` (and a `partition` of it). It lets the first `after` of them pass, then happens `times` times;
    None is until `clear()`. The first rule that meets a request decides. Each returns its Fault: `hits` counts.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._news = threading.Condition()
        self._failed: list[Fault] = []
        self.rules = Faults(self._hit)

    def fail(self, api: str, code: ErrorCode | str | int, **whom: Unpack[Whom]) -> Fault:
        """Answer with an error code instead of serving the request.

        With a topic or partition only that fails and the rest of the request is served. A request in whose answer the
        code has no place (metadata of all topics, say) is not met.
        """
        return self._add(Fault(FAIL, api, code=code, **whom))

    def delay(self, api: str = ANY_API, seconds: float = 1.0, **whom: Unpack[Whom]) -> Fault:
        """Serve the request, and those behind it on its connection, later in broker time."""
        return self._add(Fault(DELAY, api, seconds=seconds, **whom))

    def drop(self, api: str = ANY_API, *, before: bool = True, **whom: Unpack[Whom]) -> Fault:
        """Never answer, nor anything behind it on its connection; with before=False it takes effect all the same."""
        return self._add(Fault(DROP, api, before=before, **whom))

    def disconnect(self, api: str = ANY_API, *, before: bool = True, **whom: Unpack[Whom]) -> Fault:
        """Close the connection instead of answering; with before=False after the request took effect."""
        return self._add(Fault(DISCONNECT, api, before=before, **whom))

    def ask(self, api: str, function: Function, **whom: Unpack[Whom]) -> Fault:
        """Let a function decide on each request, with what its ClientRequest offers.

            broker.faults.ask("Fetch", lambda request: request.delay(2) if request.max_wait_ms > 100 else None)

        None leaves the request to the next rule and the broker. It runs on the broker's thread: it must not wait. If it
        raises, the rule ends and the broker says so when it is closed. `times` is for ever unless given; what the
        function lets pass does not count.
        """
        return self._add(Fault(Action.ASK, api, function=function, **({"times": None} | whom)))

    def wait(self, fault: Fault, hits: int = 1, timeout: float = 30.0) -> None:
        """Until it has happened so often; TimeoutError after `timeout` seconds of real time."""
        not_on_a_loop("broker.faults.wait")
        with self._news:
            if not self._news.wait_for(lambda: fault.hits >= hits or fault.error is not None, timeout):
                raise TimeoutError(f"{fault} did not happen {hits} times in {timeout} s")
        if fault.hits < hits:
            raise FaultError(f"the function of {fault} failed") from fault.error

    def raise_errors(self) -> None:
        """FaultError where a function of a rule has failed; once."""
        failed, self._failed = self._failed, []
        if failed:
            raise FaultError(f"the function of {failed[0]} failed") from failed[0].error

    def remove(self, fault: Fault) -> None:
        """End one rule; what it holds back stays held back."""
        if self._broker.running:
            self._broker._call(lambda running: self.rules.remove(fault))
        else:
            self.rules.remove(fault)

    def clear(self) -> None:
        """End all rules. Delayed requests are served now; connections with a dropped request are closed."""
        if self._broker.running:
            self._broker._call(lambda running: self.rules.clear(running.core, running.clock.now_ms()))
        else:
            self.rules.clear(None, 0)

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self.rules))

    def _add(self, fault: Fault) -> Fault:
        if self._broker.running:
            return self._broker._call(lambda running: self.rules.add(fault))
        return self.rules.add(fault)

    def _hit(self, fault: Fault) -> None:
        if fault.error is not None and fault not in self._failed:
            self._failed.append(fault)
        with self._news:
            self._news.notify_all()
