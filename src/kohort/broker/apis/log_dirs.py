"""DescribeLogDirs: where the data is and how much of it there is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from kohort.broker.topics import Topic
from kohort.protocol import messages

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps


ROWS_AT_ONCE = 500


def handle(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.DescribeLogDirsResponse()
    path = getattr(core.store, "path", None)
    result = response.DescribeLogDirsResult(log_dir=str(path or "memory"), total_bytes=-1, usable_bytes=-1)
    if path is not None:
        usage = shutil.disk_usage(path)
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    count = 0
    for topic, indexes in _asked(core, request):
        rows = []
        for p in topic.partitions:
            count += 1
            if count % ROWS_AT_ONCE == 0:
                yield
            if p.leads and (indexes is None or p.index in indexes):
                size = p.log.size_bytes
                rows.append(
                    response.DescribeLogDirsPartition(partition_index=p.index, partition_size=size, offset_lag=0)
                )
        if rows:
            result.topics.append(response.DescribeLogDirsTopic(name=topic.name, partitions=rows))
    response.results.append(result)
    return response


def _asked(core: Core, request: Any) -> list[tuple[Topic, set[int] | None]]:
    """Each topic once, however often it is asked for."""
    if request.topics is None:
        return [(topic, None) for topic in core.topics.by_name.values()]
    wanted: dict[Topic, set[int]] = {}
    for asked in request.topics:
        topic = core.topics.by_name.get(asked.topic)
        if topic is not None:
            wanted.setdefault(topic, set()).update(asked.partitions)
    return list(wanted.items())
