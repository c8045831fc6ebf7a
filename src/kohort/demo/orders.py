"""The shop: orders that look like orders, written to a topic at a steady pace by a thread of its own."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import kohort

TOPIC = "orders"
MOST_CUSTOMERS = 400
CUSTOMERS = (
    ("Amara Okafor", "NG"), ("Bruno Costa", "BR"), ("Chiara Rossi", "IT"), ("Dmitri Ivanov", "KZ"),
    ("Elif Demir", "TR"), ("Freya Lindqvist", "SE"), ("Gabriel Moreau", "FR"), ("Hana Sato", "JP"),
    ("Isha Patel", "IN"), ("Jonas Weber", "DE"), ("Kaito Mori", "JP"), ("Lucía Fernández", "ES"),
    ("Maya Cohen", "IL"), ("Noah Smith", "US"), ("Olga Nowak", "PL"), ("Priya Nair", "IN"),
    ("Quentin Dubois", "BE"), ("Rosa Silva", "PT"), ("Sean Byrne", "IE"), ("Tariq Aziz", "AE"),
    ("Uma Rao", "IN"), ("Victor Popa", "RO"), ("Wanjiru Mwangi", "KE"), ("Xin Li", "CN"),
    ("Yara Haddad", "LB"), ("Zoë Bakker", "NL"),
)  # fmt: skip
ITEMS = (
    ("espresso cups", 24.0), ("desk lamp", 49.9), ("wool blanket", 79.0), ("chess set", 35.5), ("headphones", 129.0),
    ("running shoes", 99.95), ("notebook", 6.8), ("kettle", 39.0), ("backpack", 64.5), ("bicycle bell", 12.25),
)  # fmt: skip


def make_orders(seed: int, first: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """(key, order) without end; the key is the customer, so that a customer's orders stay in order."""
    chance = random.Random(seed)
    number = first
    while True:
        customer_id = chance.randrange(MOST_CUSTOMERS)
        customer, country = CUSTOMERS[customer_id % len(CUSTOMERS)]
        item, price = chance.choice(ITEMS)
        quantity = chance.choice((1, 1, 1, 2, 2, 3, 5))
        order = {
            "id": f"order-{number:06d}",
            "customer": customer,
            "country": country,
            "item": item,
            "quantity": quantity,
            "amount": round(price * quantity, 2),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        yield f"customer-{customer_id}", order
        number += 1


class Shop:
    """Sells until it is closed. `sold` counts orders that the broker has acknowledged."""

    def __init__(self, servers: str, first: int = 0, per_second: int = 200, seed: int = 7) -> None:
        self._producer = kohort.Producer(bootstrap_servers=servers, client_id="shop", linger_ms=20)
        self._per_second = per_second
        self._orders = make_orders(seed + first, first)
        self._deliveries: list[Any] = []
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._sell, name="shop", daemon=True)

    def open(self) -> Shop:
        self._thread.start()
        return self

    @property
    def offered(self) -> int:
        return len(self._deliveries)

    def _sell(self) -> None:
        began = time.monotonic()
        try:
            while not self._closing.wait(0.05):
                due = int((time.monotonic() - began) * self._per_second)
                while len(self._deliveries) < due:
                    key, order = next(self._orders)
                    text = json.dumps(order, ensure_ascii=False)
                    self._deliveries.append(self._producer.send(TOPIC, text, key=key))
        except BaseException as error:
            self._failure = error

    def close(self) -> int:
        """No more orders; returns how many are stored, each of them acknowledged by the broker."""
        self._closing.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._producer.flush()
        for delivery in self._deliveries:
            delivery.result()
        return len(self._deliveries)

    def abandon(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.close(timeout=1)
