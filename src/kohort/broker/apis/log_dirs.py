"""DescribeLogDirs: where the data is and how much of it there is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from kohort.broker.topics import Topic
from kohort.protocol import messages

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core


def handle(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    response = messages.DescribeLogDirsResponse()
    path = getattr(core.store, "path", None)
    result = response.DescribeLogDirsResult(log_dir=str(path or "memory"), total_bytes=-1, usable_bytes=-1)
    if path is not None:
        usage = shutil.disk_usage(path)
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    for topic, indexes in _asked(core, request):
        rows = [
            response.DescribeLogDirsPartition(partition_index=p.index, partition_size=p.log.size_bytes, offset_lag=0)
            for p in topic.partitions
            if p.leads and (indexes is None or p.index in indexes)
        ]
        if rows:
            result.topics.append(response.DescribeLogDirsTopic(name=topic.name, partitions=rows))
    response.results.append(result)
    return response


def _asked(core: Core, request: Any) -> list[tuple[Topic, set[int] | None]]:
    if request.topics is None:
        return [(topic, None) for topic in core.topics.by_name.values()]
    found = ((core.topics.by_name.get(asked.topic), set(asked.partitions)) for asked in request.topics)
    return [(topic, indexes) for topic, indexes in found if topic is not None]
