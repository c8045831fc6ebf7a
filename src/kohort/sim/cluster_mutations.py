"""Deliberate bugs that show when groups go from one broker to another, as in mutations.py. For tests only."""

from __future__ import annotations

from typing import Any

from kohort.broker import cluster_jobs
from kohort.cluster import loading
from kohort.cluster.engine import Exists
from kohort.sim.mutations import MUTATIONS, Mutation

_OF_EVERY_LOAD = (
    "reply before append",
    "start from generation 0 after a restart",
    "start without offsets after a restart",
)


def _without_the_tail(original: Any) -> Any:
    return lambda *arguments: original(*arguments)[:-1]


def _any_object_is_ours(original: Any) -> Any:
    def claim(engine: Any, name: str, data: bytes) -> None:
        try:
            engine.create(name, data)
        except Exists:
            pass

    return claim


CLUSTER_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("take over without the tail of the journal", loading, "read", _without_the_tail),
    Mutation("take another's object for one's own", cluster_jobs, "claim", _any_object_is_ours),
    *(one for one in MUTATIONS if one.title in _OF_EVERY_LOAD),
)
