"""Where the keys of bearer tokens come from: a file, or an https address. Reads, with limits, and judges nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.broker.bearer import Tokens

logger = logging.getLogger("kohort.broker")

TIMEOUT_S = 10
MOST_BYTES = 1024 * 1024


def read_keys(url: str) -> bytes:
    """OSError or ValueError where they cannot be had."""
    from pathlib import Path  # late: few brokers read keys
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).read_bytes()
    from http.client import HTTPException, HTTPSConnection  # late: they take long to import
    from ssl import create_default_context

    connection = HTTPSConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S, context=create_default_context())
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        data = answer.read(MOST_BYTES + 1)
    except HTTPException as error:
        raise OSError(f"the answer cannot be read: {error!r}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"the answer is {answer.status} {answer.reason}")
    if len(data) > MOST_BYTES:
        raise ValueError(f"the answer is longer than {MOST_BYTES} bytes")
    return data


class KeysRefresh:
    """A Job: the keys of an address once more. Where they cannot be had the old ones stay."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def run(self) -> None:
        self._tokens.reload()

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        self._tokens.is_refreshing = False
        if error is not None:
            logger.warning("the keys of bearer tokens stay as they are: %s", error)
