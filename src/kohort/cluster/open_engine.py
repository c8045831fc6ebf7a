"""From what a user writes after --cluster to an engine, and whether the store is one that can carry a cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote, urlparse

from kohort.cluster.directory_engine import DirectoryEngine
from kohort.cluster.engine import Engine, EngineError, Exists
from kohort.cluster.object_engine import SCHEMES, ObjectEngine

RACERS = 8
_MEANT = {name: name for name in ("file", *SCHEMES)} | {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "azure": "az",
    "wasb": "az",
    "wasbs": "az",
    "dir": "file",
}
"""What people write, and what it is called here."""


def open_engine(url: str, *, create: bool = True, **options: Any) -> Engine:
    """file:///path, s3://bucket/prefix, gs://, az://; EngineError says what is wrong with it. A directory is made
    unless whoever asks only looks."""
    parsed = urlparse(url)
    if parsed.scheme == "file":
        if parsed.netloc not in ("", "localhost") or not parsed.path.startswith("/"):
            raise EngineError(f"{url} is not a directory of this machine: write it as file:///path")
        return DirectoryEngine(unquote(parsed.path), create=create)
    if parsed.scheme in SCHEMES:
        return ObjectEngine(url, **options)
    from difflib import get_close_matches  # slow to import, and seldom needed

    known = ", ".join(["file", *SCHEMES])
    near = get_close_matches(parsed.scheme, _MEANT, 1, 0.5)
    meant = f"file://{url}" if url.startswith("/") else f"{_MEANT[near[0]]}://{url.partition('://')[2]}" if near else ""
    hint = f"; did you mean {meant}?" if meant else ", as in file:///var/lib/kohort"
    raise EngineError(f"{url} is no store for a cluster: it begins with one of {known}{hint}")


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
