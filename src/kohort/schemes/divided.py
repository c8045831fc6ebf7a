"""Many groups, divided over the coordinators of three brokers, one of which dies: whom that concerns, in the schemes in
which a broker coordinates. With one coordinator for all it would concern everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from kohort.schemes.meter import Meter
from kohort.schemes.registry import BROKERS
from kohort.schemes.scheme import SESSION_TIMEOUT_MS, TOPIC
from kohort.schemes.server_coordinator import ServerCoordinator
from kohort.schemes.today import FETCH_WAIT_MS, OPTIONS
from kohort.sim.cluster_world import ClusterWorld
from kohort.sim.member import SimMember

MEMBERS, PARTITIONS = 3, 6
"""Of each group."""
JOIN_EVERY_MS = 100
SETTLE_MS = 20_000
ROUND_MS = 2_000
LOOK_MS = 50
LIMIT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Loss:
    """What the death of one broker came to. Groups that were its own are those that it coordinated."""

    scheme: str
    groups: int
    coordinators: int
    """Brokers that had groups to coordinate."""
    its_own: int
    rebalanced: int
    others_rebalanced: int
    """Of groups that another broker coordinates."""
    coordinated_after_ms: int
    """Until all groups have a coordinator again that has done what it had to."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def lose_one(groups: int, seed: int) -> Iterator[Loss]:
    names = [f"g{index}" for index in range(groups)]
    yield _server_coordinator(names, seed, subsets=1)
    yield replace(_server_coordinator(names, seed, subsets=BROKERS), scheme="server coordinator, divided")
    yield _real("today", "classic", names, seed)
    yield _real("next", "consumer", names, seed)


def _until(scheduler: Any, done: Callable[[], bool]) -> None:
    limit_ms = scheduler.now_ms + LIMIT_MS
    while not done() and scheduler.now_ms < limit_ms:
        scheduler.run(scheduler.now_ms + LOOK_MS)


def _server_coordinator(groups: list[str], seed: int, subsets: int) -> Loss:
    world = ServerCoordinator(seed, PARTITIONS, groups, subsets)
    scheduler, meters = world.scheduler, {group: world.meters[group] for group in groups}
    for number in range(MEMBERS):
        for group in groups:
            world.join_group(f"{group}-c{number}", group)
            scheduler.run(scheduler.now_ms + JOIN_EVERY_MS)
    _until(scheduler, lambda: _all_agree(meters))
    coordinators = {group: world.coordinator(group) for group in groups}
    lost = coordinators[groups[0]]
    before, began_ms = {group: meter.now().requests for group, meter in meters.items()}, scheduler.now_ms
    world.lose_broker(groups[0])
    _until(scheduler, lambda: all(world.coordinator(group) is not None for group in groups))
    scheduler.run(scheduler.now_ms + ROUND_MS)
    _until(scheduler, lambda: _all_agree(meters))
    concerned = {group for group, meter in meters.items() if meter.now().requests > before[group]}
    agreed = [meters[group].agreed_since_ms or scheduler.now_ms for group in concerned]
    its_own = {group for group, broker in coordinators.items() if broker is lost}
    return Loss(
        "server coordinator",
        len(groups),
        len(set(coordinators.values())),
        len(its_own),
        len(concerned),
        len(concerned - its_own),
        max(agreed, default=began_ms) - began_ms,
    )


def _all_agree(meters: dict[str, Meter]) -> bool:
    return all(meter.agreed_since_ms is not None for meter in meters.values())


def _real(scheme: str, protocol: str, groups: list[str], seed: int) -> Loss:
    world = ClusterWorld(seed, OPTIONS, [])
    world._create_topic(TOPIC, PARTITIONS)
    for number in range(MEMBERS):
        for group in groups:
            arguments = (frozenset((TOPIC,)), "range", None, False, FETCH_WAIT_MS, protocol)
            SimMember(world, f"{group}-c{number}", group, *arguments).start()
            world.scheduler.run(world.scheduler.now_ms + JOIN_EVERY_MS)
    world.scheduler.run(world.scheduler.now_ms + SETTLE_MS)
    coordinators = {group: world.coordinator_of(group) for group in groups}
    lost = coordinators[groups[0]]
    before, began_ms = _generations(world, groups), world.scheduler.now_ms
    lost.kill()
    _until(world.scheduler, lambda: all(world.group_now(group) is not None for group in groups))
    coordinated_ms = world.scheduler.now_ms - began_ms
    world.scheduler.run(world.scheduler.now_ms + 2 * SESSION_TIMEOUT_MS)
    after = _generations(world, groups)
    rebalanced = {group for group in groups if after[group] != before[group]}
    its_own = {group for group, node in coordinators.items() if node is lost}
    of_all = len(set(coordinators.values()))
    return Loss(scheme, len(groups), of_all, len(its_own), len(rebalanced), len(rebalanced - its_own), coordinated_ms)


def _generations(world: ClusterWorld, groups: list[str]) -> dict[str, int]:
    found = {group: world.group_now(group) for group in groups}
    return {group: -1 if one is None else one.generation for group, one in found.items()}
