"""A store in a bucket of S3, GCS or Azure, through `obstore` (extra kohort[cluster]).

Credentials are found as the store's own libraries find them: environment, profile, the machine's role.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from typing import Any

from kohort.cluster.engine import Engine, EngineError, Exists, Missing, T
from kohort.cluster.store_advice import advice
from kohort.cluster.waves import MOST, in_waves

TIMEOUT_S = 5
SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
_VENDORS = {"s3": "AWS", "gs": "GOOGLE"}


class ObjectEngine(Engine):
    poll_ms = 250

    def __init__(self, url: str, **options: Any) -> None:
        try:
            verbs: Any = import_module("obstore")
            errors: Any = import_module("obstore.exceptions")
            stores: Any = import_module("obstore.store")
        except ImportError:
            raise EngineError(f"a cluster on {url} needs the package obstore: pip install 'kohort[cluster]'") from None
        self.name = url
        self._verbs = verbs
        self._exists = (errors.AlreadyExistsError, FileExistsError)
        self._missing = (errors.NotFoundError, FileNotFoundError)
        self._error = (errors.BaseError, OSError)
        # Own time-outs: a broker that waits for a store for minutes is of no use to its clients.
        client = {
            "timeout": f"{TIMEOUT_S}s",
            "connect_timeout": "2s",
            **_allowed(url),
            **options.pop("client_options", {}),
        }
        retry = {"max_retries": 1, "retry_timeout": timedelta(seconds=TIMEOUT_S)}
        try:
            self._store = stores.from_url(url, client_options=client, retry_config=retry, **options)
        except Exception as error:
            raise EngineError(f"the store {url} cannot be used: {_first_line(error)}{_advice(url, error)}") from None

    def create(self, name: str, data: bytes) -> None:
        try:
            self._verbs.put(self._store, name, data, mode="create", use_multipart=False)
        except self._exists:
            raise Exists(name) from None
        except self._error as error:
            raise self._failed("create", name, error) from None

    def get(self, name: str) -> bytes:
        try:
            return bytes(self._verbs.get(self._store, name).bytes())
        except self._missing:
            raise Missing(name) from None
        except self._error as error:
            raise self._failed("read", name, error) from None

    def get_range(self, name: str, position: int, size: int) -> bytes:
        try:
            return bytes(self._verbs.get_range(self._store, name, start=position, length=size))
        except self._missing:
            raise Missing(name) from None
        except self._error as error:
            raise self._failed("read", name, error) from None

    def list(self, prefix: str) -> list[str]:
        try:
            rows = [row for rows in self._verbs.list(self._store, prefix=prefix.rstrip("/")) for row in rows]
        except self._error as error:
            raise self._failed("list", prefix, error) from None
        return sorted(row["path"] for row in rows)  # S3 Express lists in no order

    def delete(self, name: str) -> None:
        try:
            self._verbs.delete(self._store, name)
        except self._missing:
            pass
        except self._error as error:
            raise self._failed("delete", name, error) from None

    def delete_all(self, names: Sequence[str]) -> None:
        """In few requests where the store has one for many."""
        if not names:
            return
        try:
            self._verbs.delete(self._store, list(names))
        except self._missing:
            super().delete_all(names)
        except self._error as error:
            raise self._failed("delete", f"{names[0]} and others", error) from None

    def together(self, questions: Sequence[Callable[[], T]]) -> Sequence[T]:
        if len(questions) < 2:
            return super().together(questions)
        with ThreadPoolExecutor(min(len(questions), MOST), thread_name_prefix="kohort-together") as pool:
            return in_waves(questions, lambda some: list(pool.map(_answer, some)), time.monotonic)

    def _failed(self, verb: str, name: str, error: BaseException) -> EngineError:
        return EngineError(f"cannot {verb} {name} in {self.name}: {_first_line(error)}{_advice(self.name, error)}")


def _answer(question: Callable[[], T]) -> T | EngineError:
    try:
        return question()
    except EngineError as error:
        return error


def _allowed(url: str) -> dict[str, bool]:
    """What the environment allows is forgotten by the library where options are given."""
    vendor = _VENDORS.get(url.partition("://")[0], "AZURE")
    return {"allow_http": True} if os.environ.get(f"{vendor}_ALLOW_HTTP", "").lower() in ("true", "1") else {}


def _advice(url: str, error: BaseException) -> str:
    found = advice(url, f"{type(error).__name__} {error}")
    return f"; {found}" if found else ""


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
