"""The broker's settings as the group coordinator knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kohort.assignors import load_server_assignors
from kohort.broker.config import BrokerConfig
from kohort.broker.config_keys import GROUP_KEYS
from kohort.coordinator.context import CoordinatorConfig, MigrationPolicy

if TYPE_CHECKING:
    from kohort.broker.topics import Catalog


_INTERVAL = "group.consumer.assignment.interval.ms"


class GroupConfigs:
    """What groups have of their own, and what was changed for all of them since the broker started."""

    def __init__(self, config: BrokerConfig, catalog: Catalog) -> None:
        self._config = config
        self._catalog = catalog

    def get(self, group_id: str, /) -> Mapping[str, int] | None:
        config, own = self._config, self._catalog.group_overrides.get(group_id)
        if own is None:
            if _INTERVAL not in config.dynamic and _INTERVAL not in config.cluster:
                return None
            own = {}
        return {
            name: key.parse(own[name]) if name in own else config.integer(key.synonyms[0])
            for name, key in GROUP_KEYS.items()
        }


def coordinator_config(config: BrokerConfig, catalog: Catalog) -> CoordinatorConfig:
    return CoordinatorConfig(
        of_groups=GroupConfigs(config, catalog),
        offsets_topic_num_partitions=config["offsets.topic.num.partitions"],
        group_min_session_timeout_ms=config["group.min.session.timeout.ms"],
        group_max_session_timeout_ms=config["group.max.session.timeout.ms"],
        group_initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        group_max_size=config["group.max.size"],
        max_groups=config["kohort.max.groups"],
        max_pending_members=config["kohort.group.max.pending.members"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_minutes=config["offsets.retention.minutes"],
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
        offsets_commit_timeout_ms=config["offsets.commit.timeout.ms"],
        consumer_session_timeout_ms=config["group.consumer.session.timeout.ms"],
        consumer_heartbeat_interval_ms=config["group.consumer.heartbeat.interval.ms"],
        consumer_assignment_interval_ms=config["group.consumer.assignment.interval.ms"],
        consumer_max_size=config["group.consumer.max.size"],
        consumer_regex_refresh_interval_ms=config["group.consumer.regex.refresh.interval.ms"],
        consumer_migration_policy=MigrationPolicy(config["group.consumer.migration.policy"].lower()),
        assignor_timeout_ms=config["kohort.group.consumer.assignor.timeout.ms"],
        assignors=load_server_assignors(config["group.consumer.assignors"]),
    )
