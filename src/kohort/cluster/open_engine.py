"""From what a user writes after --cluster to an engine, and whether the store is one that can carry a cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote, urlparse

from kohort.cluster.directory_engine import DirectoryEngine
from kohort.cluster.engine import Engine, EngineError, Exists
from kohort.cluster.object_engine import SCHEMES, ObjectEngine

RACERS = 8


def open_engine(url: str, **options: Any) -> Engine:
    """file:///path, s3://bucket/prefix, gs://, az://; EngineError says what is wrong with it."""
    parsed = urlparse(url)
    if parsed.scheme == "file":
        if parsed.netloc not in ("", "localhost") or not parsed.path.startswith("/"):
            raise EngineError(f"{url} is not a directory of this machine: write it as file:///path")
        return DirectoryEngine(unquote(parsed.path))
    if parsed.scheme in SCHEMES:
        return ObjectEngine(url, **options)
    known = ", ".join(["file", *SCHEMES])
    raise EngineError(f"{url} is no store for a cluster: it begins with one of {known}, as in file:///var/lib/kohort")


def probe(engine: Engine, nonce: str) -> None:
    """Let several create one name at a time; EngineError where not exactly one of them succeeds, or one cannot ask.

    Some stores that speak S3 take the condition and ignore it: two leaders would then both be acknowledged.
    """
    name = f"probe/{nonce}"
    with ThreadPoolExecutor(RACERS, thread_name_prefix="kohort-probe") as threads:
        racers = [threads.submit(_race, engine, name, str(number).encode()) for number in range(RACERS)]
        winners = [number for number, racer in enumerate(racers) if racer.result()]
    try:
        kept = engine.get(name)
    finally:
        engine.delete(name)
    if len(winners) != 1 or kept != str(winners[0]).encode():
        raise EngineError(
            f"{engine.name} is not atomic: of {RACERS} that created one object at a time {len(winners)} were told that "
            "they had; no cluster can rest on it, choose another store (docs/cluster.md lists those known to be good)"
        )


def _race(engine: Engine, name: str, data: bytes) -> bool:
    try:
        engine.create(name, data)
    except Exists:
        return False
    return True
