"""The server's `range`: every topic by itself, in stretches, so that topics with as many partitions are read together.

Static members come first, by their instance ids: whoever comes back under one gets the same stretch.
"""

from __future__ import annotations

from kohort.assignors.numbers import Numbers
from kohort.assignors.ordering import java_sorted
from kohort.assignors.server import GroupSpec, partition_count


class ServerRangeAssignor:
    name = "range"

    def assign(self, spec: GroupSpec) -> dict[str, dict[bytes, Numbers]]:
        assignment: dict[str, dict[bytes, Numbers]] = {member_id: {} for member_id in spec.members}
        subscribers: dict[bytes, list[str]] = {}
        for member_id in _in_order(spec):
            for topic_id in spec.members[member_id].topic_ids:
                subscribers.setdefault(topic_id, []).append(member_id)
        for topic_id, member_ids in subscribers.items():
            least, extra = divmod(partition_count(spec, topic_id), len(member_ids))
            start = 0
            for index, member_id in enumerate(member_ids):
                end = start + least + (index < extra)
                if start < end:
                    assignment[member_id][topic_id] = Numbers(range(start, end))
                start = end
        return assignment


def _in_order(spec: GroupSpec) -> list[str]:
    static = {member.instance_id: member_id for member_id, member in spec.members.items() if member.instance_id}
    dynamic = [member_id for member_id, member in spec.members.items() if not member.instance_id]
    return [static[instance_id] for instance_id in java_sorted(static)] + java_sorted(dynamic)
