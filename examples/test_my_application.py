"""How to test an application that reads from Kafka: what it does in a rebalance, a crash, an outage.

pip install kohort pytest, then `pytest examples/test_my_application.py`. No Docker, no JVM, no sleeping: the broker
lives in the test and its clock is advanced. It is a real one for any client; this application uses kohort's own.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

import kohort

# The application: it would be imported. It books orders, and commits what it has booked.


class Bookkeeper:
    """Reads orders as a member of the group `bookkeeping` and adds their amounts up by customer.

    An order that is read again, after a crash or a rebalance, is recognised and booked once.
    """

    def __init__(
        self, servers: str, topic: str, books: Books, session_timeout_ms: int = 45_000, client_id: str = "bookkeeper"
    ) -> None:
        self._books = books
        self.consumer = kohort.Consumer(
            bootstrap_servers=servers,
            group_id="bookkeeping",
            client_id=client_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=100,
        )
        self.consumer.subscribe(topic)

    def work(self) -> None:
        """One round."""
        records = self.consumer.poll(timeout=0.05, max_records=5)
        for record in records:
            self._books.book((record.partition, record.offset), record.key.decode(), int(record.value))
        if records:
            try:
                self.consumer.commit()
            except kohort.client.CommitFailedError:
                pass  # the partitions are somebody else's now, who reads these orders again


class Books:
    """The database of the application."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self.booked: set[tuple[int, int]] = set()
        self.seen_again = 0
        self.after: dict[int, Callable[[], object]] = {}
        """What is to happen once so many are booked: how a test comes in between."""

    def book(self, order: tuple[int, int], customer: str, amount: int) -> None:
        if order in self.booked:
            self.seen_again += 1
            return
        self.booked.add(order)
        self.totals[customer] += amount
        self.after.pop(len(self.booked), lambda: None)()


# Its tests.

ORDERS = [(f"customer-{number % 7}".encode(), b"%d" % number) for number in range(100)]
TOTALS = Counter({f"customer-{rest}": sum(range(rest, 100, 7)) for rest in range(7)})


def work_until(condition: Callable[[], bool], *bookkeepers: Bookkeeper) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, "it never came true"
        for bookkeeper in bookkeepers:
            bookkeeper.work()


@pytest.fixture
def books() -> Books:
    return Books()


@pytest.fixture
def hire(kohort_broker, kohort_topic, books):
    """Starts bookkeepers of one topic with orders in it; they are closed after the test."""
    topic = kohort_topic("orders", partitions=4, records=ORDERS)
    hired = []

    def start(**settings) -> Bookkeeper:
        hired.append(Bookkeeper(kohort_broker.bootstrap_servers, topic, books, **settings))
        return hired[-1]

    yield start
    for bookkeeper in hired:
        bookkeeper.consumer.close()


def test_a_second_instance_takes_its_share(hire, books):
    first = hire()
    work_until(lambda: len(first.consumer.assignment()) == 4, first)
    second = hire()
    work_until(lambda: len(first.consumer.assignment()) == len(second.consumer.assignment()) == 2, first, second)
    work_until(lambda: len(books.booked) == len(ORDERS), first, second)
    assert books.totals == TOTALS


def test_a_crash_in_the_middle_loses_nothing(hire, books, kohort_broker, kohort_clock):
    crashing = hire(session_timeout_ms=10_000)
    work_until(lambda: len(books.booked) >= 20, crashing)
    crashing.consumer.close(leave_group=False)  # to the group this is a crash: it is missed only when its session ends
    survivor = hire()
    kohort_clock.advance(10)
    work_until(lambda: len(books.booked) == len(ORDERS), survivor)
    assert books.totals == TOTALS
    assert "MemberEvicted" in [event.type for event in kohort_broker.story("bookkeeping")]


def test_lost_commits_are_made_good_by_reading_again(hire, books, kohort_broker):
    """It is put out of the group between the work and the commit, and does that work again."""
    only = hire(client_id="only")
    books.after[10] = lambda: kohort_broker.evict("bookkeeping", client="only")
    work_until(lambda: len(books.booked) == len(ORDERS), only)
    assert books.seen_again > 0
    assert books.totals == TOTALS
    work_until(lambda: sum(kohort_broker.committed("bookkeeping").values()) == len(ORDERS), only)


def test_an_outage_is_survived(hire, books, kohort_broker):
    only = hire()
    work_until(lambda: len(books.booked) >= 20, only)
    kohort_broker.restart()
    work_until(lambda: len(books.booked) == len(ORDERS), only)
    assert books.totals == TOTALS
    assert books.seen_again <= 5
