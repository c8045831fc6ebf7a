"""One step of a member from what it has towards its target: a pure function, the heart of KIP-848.

        STABLE -> UNREVOKED_PARTITIONS -> UNRELEASED_PARTITIONS -> STABLE

First it gives up what is not in its target; while it has not said that it did, it stays in its epoch. Then it moves to
the target's epoch and gets what is free; what others still hold it gets when they have released it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from kohort.coordinator.modern_records import NOTHING, CurrentAssignment, Epochs, MemberState, Partitions

Owned = Mapping[bytes, Iterable[int]]
"""What the member says it has."""

STEPS: dict[MemberState, frozenset[MemberState]] = {
    MemberState.STABLE: frozenset(MemberState) - {MemberState.UNKNOWN},
    MemberState.UNREVOKED_PARTITIONS: frozenset(MemberState) - {MemberState.UNKNOWN},
    MemberState.UNRELEASED_PARTITIONS: frozenset(MemberState) - {MemberState.UNKNOWN},
    MemberState.UNKNOWN: frozenset(MemberState) - {MemberState.UNKNOWN},
}


def step(
    current: CurrentAssignment,
    target_epoch: int,
    target: Partitions,
    topic_ids: Set[bytes],
    owned: Owned | None,
    is_held: Callable[[bytes, int], bool],
    *,
    resubscribed: bool = False,
) -> CurrentAssignment:
    """`topic_ids` is what it subscribes to; `is_held` whether somebody else holds a partition still. What the member
    keeps is the same object as before, so that whoever compares the two is done at once."""
    moved = _step(current, target_epoch, target, topic_ids, owned, is_held, resubscribed)
    assert moved.state in STEPS[current.state], moved
    return moved


def _step(
    current: CurrentAssignment,
    target_epoch: int,
    target: Partitions,
    topic_ids: Set[bytes],
    owned: Owned | None,
    is_held: Callable[[bytes, int], bool],
    resubscribed: bool,
) -> CurrentAssignment:
    epoch = current.member_epoch
    if current.state is MemberState.STABLE and epoch == target_epoch:
        return _without_unsubscribed(current, topic_ids, owned) if resubscribed else current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, current.pending):
        return _without_unsubscribed(current, topic_ids, owned) if resubscribed else current
    if current.state is MemberState.STABLE and _is_all(current.assigned, target, topic_ids):
        return CurrentAssignment(target_epoch, epoch, MemberState.STABLE, current.assigned, NOTHING)
    if current.state is MemberState.UNKNOWN:
        assert owned is not None and not owned, "such a member is refused"  # see refusing.check_state
        epoch = target_epoch
    return _towards(current, epoch, target_epoch, target, topic_ids, owned, is_held)


def _is_all(assigned: Epochs, target: Partitions, topic_ids: Set[bytes]) -> bool:
    """Whether a member has what it is to have, no more and no less: so it is with most of them at most changes."""
    if len(assigned) != len(target):
        return False
    for topic_id, wanted in target.items():
        had = assigned.get(topic_id, NOTHING)
        if len(had) != len(wanted) or topic_id not in topic_ids or not all(map(had.__contains__, wanted)):
            return False
    return True


def _owns(owned: Owned | None, partitions: Epochs) -> bool:
    """Whether it has any of them; who does not say is taken to have what it had."""
    if owned is None:
        return True
    return any(
        number in partitions[topic_id]
        for topic_id, given in owned.items()
        if topic_id in partitions
        for number in given
    )


def _without_unsubscribed(current: CurrentAssignment, topic_ids: Set[bytes], owned: Owned | None) -> CurrentAssignment:
    """The subscription has changed before the target has: what it does not read any more it gives up at once."""
    gone = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in topic_ids}
    if not gone:
        return current
    assigned = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id in topic_ids}
    pending = {topic_id: dict(epochs) for topic_id, epochs in current.pending.items()}
    for topic_id, epochs in gone.items():
        pending.setdefault(topic_id, {}).update(epochs)
    if _owns(owned, pending):
        return CurrentAssignment(
            current.member_epoch, current.member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending
        )
    return CurrentAssignment(current.member_epoch, current.member_epoch, current.state, assigned, current.pending)


def _towards(
    current: CurrentAssignment,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    topic_ids: Set[bytes],
    owned: Owned | None,
    is_held: Callable[[bytes, int], bool],
) -> CurrentAssignment:
    assigned: dict[bytes, Mapping[int, int]] = {}
    pending: dict[bytes, Mapping[int, int]] = {}
    coming: dict[bytes, dict[int, int]] = {}
    waits = False
    for topic_id in dict.fromkeys((*current.assigned, *target)):
        wanted: Set[int] = target.get(topic_id, frozenset()) if topic_id in topic_ids else frozenset()
        had = current.assigned.get(topic_id, NOTHING)
        kept: Mapping[int, int] = {number: since for number, since in had.items() if number in wanted}
        if len(kept) < len(had):
            pending[topic_id] = {number: since for number, since in had.items() if number not in wanted}
        else:
            kept = had
        if kept:
            assigned[topic_id] = kept
        if len(kept) < len(wanted):
            mine = current.pending.get(topic_id, NOTHING)
            for number in sorted(wanted):
                if number not in kept:
                    if number in mine or not is_held(topic_id, number):
                        coming.setdefault(topic_id, {})[number] = target_epoch
                    else:
                        waits = True
    previous = current.member_epoch
    if pending and _owns(owned, pending):
        return CurrentAssignment(epoch, previous, MemberState.UNREVOKED_PARTITIONS, assigned, pending)
    for topic_id, given in coming.items():
        assigned[topic_id] = {**assigned.get(topic_id, NOTHING), **given}
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    same = not pending and not coming
    return CurrentAssignment(target_epoch, previous, state, current.assigned if same else assigned, NOTHING)
