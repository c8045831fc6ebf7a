"""The broker's settings as the group coordinator knows them."""

from __future__ import annotations

from kohort.broker.config import BrokerConfig
from kohort.coordinator.context import CoordinatorConfig


def coordinator_config(config: BrokerConfig) -> CoordinatorConfig:
    return CoordinatorConfig(
        offsets_topic_num_partitions=config["offsets.topic.num.partitions"],
        group_min_session_timeout_ms=config["group.min.session.timeout.ms"],
        group_max_session_timeout_ms=config["group.max.session.timeout.ms"],
        group_initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        group_max_size=config["group.max.size"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_minutes=config["offsets.retention.minutes"],
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
        offsets_commit_timeout_ms=config["offsets.commit.timeout.ms"],
    )
