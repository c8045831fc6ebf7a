"""What answers tell the metrics: how long they took, how much they brought. Pure."""

from __future__ import annotations

from typing import Any

from kohort.client.metrics import Metrics
from kohort.protocol.apis import ApiKey
from kohort.protocol.errors import ErrorCode


def measure_answer(metrics: Metrics, api: int, response: Any, took_ms: int, now_ms: int) -> None:
    if api == ApiKey.FETCH:
        metrics.fetch.record(took_ms, now_ms)
        size = sum(len(p.records) for topic in response.responses for p in topic.partitions if p.records is not None)
        metrics.fetch_size.record(size, now_ms)
        metrics.fetch_throttle.record(response.throttle_time_ms, now_ms)
    elif api in (ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT):
        metrics.heartbeat.record(took_ms, now_ms)
        metrics.last_heartbeat_ms = now_ms
    elif api == ApiKey.OFFSET_COMMIT:
        metrics.commit.record(took_ms, now_ms)
    elif api == ApiKey.JOIN_GROUP:
        if response.error_code == ErrorCode.NONE:
            metrics.join.record(took_ms, now_ms)
        elif response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            metrics.rebalance_failed(now_ms)
    elif api == ApiKey.SYNC_GROUP:
        if response.error_code == ErrorCode.NONE:
            metrics.sync.record(took_ms, now_ms)
            metrics.rebalance_ended(now_ms)
        else:
            metrics.rebalance_failed(now_ms)
