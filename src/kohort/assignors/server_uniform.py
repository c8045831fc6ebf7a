"""The server's `uniform`, the default: counts that differ by at most one, and then as few moves as that allows.

Members that subscribe alike get quotas and keep what fits into them; where subscriptions differ, see
server_uniform_mixed.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from kohort.assignors.numbers import Numbers, numbers_in
from kohort.assignors.server import AssignmentError, GroupSpec, partition_count
from kohort.assignors.server_uniform_mixed import assign_mixed

Run = range | tuple[int, ...]


class UniformAssignor:
    name = "uniform"

    def assign(self, spec: GroupSpec) -> Mapping[str, Mapping[bytes, Set[int]]]:
        if not spec.members:
            return {}
        return _assign_alike(spec) if spec.alike else assign_mixed(spec)


def _assign_alike(spec: GroupSpec) -> dict[str, dict[bytes, Numbers]]:
    topic_ids = sorted(next(iter(spec.members.values())).topic_ids)
    if not topic_ids:
        return {}
    counts = {topic_id: partition_count(spec, topic_id) for topic_id in topic_ids}
    least, extra = divmod(sum(counts.values()), len(spec.members))
    taken = dict.fromkeys(topic_ids, 0)
    given_up: list[tuple[bytes, Run]] = []
    assignment: dict[str, dict[bytes, Numbers]] = {}
    unfilled: list[tuple[str, int]] = []
    left = len(spec.members)
    for member_id, member in spec.members.items():
        has_extra = extra > 0
        quota = least + has_extra
        kept: dict[bytes, Numbers] = {}
        assigned = member.assigned
        for topic_id in sorted(assigned) if len(assigned) > 1 else assigned:
            known = taken.get(topic_id)
            if known is None:
                continue
            given_before = assigned[topic_id]
            numbers = given_before if type(given_before) is Numbers else Numbers.of(given_before)
            ordered = numbers.ordered
            size = len(ordered)
            if size:
                if ordered[0] < 0 or ordered[-1] >= counts[topic_id]:
                    raise AssignmentError(f"{spec.topics[topic_id].name} has lost partitions")
                mask = ((1 << size) - 1) << ordered.start if type(ordered) is range else numbers.mask
                taken[topic_id] = known | mask
            if size <= quota:
                kept[topic_id] = numbers
                quota -= size
                continue
            if quota:
                kept[topic_id] = Numbers(ordered[:quota])
            given_up.append((topic_id, ordered[quota:]))
            quota = 0
        if quota and has_extra and left > extra:
            quota, has_extra = quota - 1, False  # somebody after it may hold one more already
        if quota:
            unfilled.append((member_id, quota))
        extra -= has_extra
        left -= 1
        assignment[member_id] = kept
    free = _Free([*_unassigned(counts, taken), *given_up])
    for member_id, quota in unfilled:
        given = assignment[member_id]
        for topic_id, run in free.take(quota):
            had = given.get(topic_id)
            given[topic_id] = Numbers(run) if had is None else had.with_these(run)
    if free.size:
        raise AssertionError("partitions were left over")
    return assignment


def _unassigned(counts: Mapping[bytes, int], taken: Mapping[bytes, int]) -> Iterator[tuple[bytes, Run]]:
    """`taken` has a bit for each partition that somebody has."""
    for topic_id, count in counts.items():
        known = taken[topic_id]
        if not known:
            yield topic_id, range(count)
        elif free := known ^ ((1 << count) - 1):
            yield topic_id, numbers_in(free)


class _Free:
    """Partitions that nobody has, in runs of a topic; taken from the front."""

    def __init__(self, runs: Iterable[tuple[bytes, Run]]) -> None:
        self._runs = [run for run in runs if run[1]]
        self._at = self._from = 0
        self.size = sum(len(numbers) for _, numbers in self._runs)

    def take(self, count: int) -> Iterator[tuple[bytes, Run]]:
        while count > 0 and self.size:
            topic_id, numbers = self._runs[self._at]
            run = numbers[self._from : self._from + count]
            self._from += len(run)
            if self._from == len(numbers):
                self._at, self._from = self._at + 1, 0
            count -= len(run)
            self.size -= len(run)
            yield topic_id, run
