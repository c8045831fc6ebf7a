"""The meta log in the store: reading it, and adding to it. Whoever creates meta/<n+1> decides."""

from __future__ import annotations

from kohort.cluster import names
from kohort.cluster.engine import Engine, EngineError, Missing, claim
from kohort.cluster.snapshots import Damaged, decode_changes, decode_state, encode_changes
from kohort.cluster.state import Change, ClusterState

SNAPSHOT_EVERY = 200


def load(engine: Engine) -> ClusterState:
    """The cluster as it is now: the last snapshot, and what follows it. Damaged where something is missing between."""
    state = ClusterState()
    found = engine.list("snapshot/")
    if found:
        state = decode_state(found[-1], engine.get(found[-1]))
    while True:
        for version, changes in news(engine, state.version):
            state.apply(version, changes)
        if not goes_on(engine, state.version):
            return state


def goes_on(engine: Engine, version: int) -> bool:
    """Whether there is more than that by now. Damaged where what comes next is gone and what follows it is there:
    whoever went on from here would decide what others have decided otherwise."""
    later = [name for name in engine.list("meta/") if names.number(name) > version]
    following = names.meta(version + 1)
    if later and following not in later:
        raise Damaged(
            f"{following} is gone from {engine.name}, and {later[0]} is there: restore it from a copy of the store "
            "before a broker can start; those that run go on"
        )
    return bool(later)


def news(engine: Engine, version: int) -> list[tuple[int, list[Change]]]:
    """Change sets after `version`."""
    found: list[tuple[int, list[Change]]] = []
    while True:
        version += 1
        try:
            data = engine.get(names.meta(version))
        except Missing:
            return found
        found.append((version, decode_changes(names.meta(version), data)))


def propose(engine: Engine, version: int, changes: list[Change], nonce: str, *, begins: bool = False) -> bool:
    """Make these the change set `version`; False where another one is. EngineError: ask again, with the same nonce.

    Who `begins` a new life may have been away for long: what it would write next must not have been there before.
    """
    if begins:
        goes_on(engine, version - 1)
    return claim(engine, names.meta(version), encode_changes(version, changes, nonce)) is None


def keep_snapshot(engine: Engine, version: int, data: bytes) -> None:
    """Of several snapshots of one version any will do; only the last two are kept."""
    claim(engine, names.snapshot(version), data)
    engine.delete_all(engine.list("snapshot/")[:-2])


def found_cluster(engine: Engine, cluster_id: str, nonce: str) -> ClusterState:
    """The cluster of this store, which is made where there is none yet."""
    state = load(engine)
    while state.version < 0:
        propose(engine, 0, [{"kind": "format", "cluster_id": cluster_id}], nonce)
        state = load(engine)
    if not state.cluster_id:
        raise EngineError(f"{engine.name} holds something else than a cluster: choose another place in it")
    return state
