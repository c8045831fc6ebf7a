"""What the parts of a consumer's core need of its configuration."""

from __future__ import annotations

from kohort.client.assigned import FetcherConfig
from kohort.client.config import Config
from kohort.client.states import MemberConfig


def member_config(config: Config) -> MemberConfig:
    return MemberConfig(
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        enable_auto_commit=config.enable_auto_commit,
        auto_commit_interval_ms=config.auto_commit_interval_ms,
        request_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        client_rack=config.client_rack,
        exclude_internal_topics=config.exclude_internal_topics,
        group_remote_assignor=config.group_remote_assignor,
    )


def fetcher_config(config: Config) -> FetcherConfig:
    return FetcherConfig(
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        max_partition_bytes=config.max_partition_fetch_bytes,
        max_wait_ms=config.fetch_max_wait_ms,
        prefetch_max_bytes=config.prefetch_max_bytes,
        read_committed=config.isolation_level == "read_committed",
        check_crcs=config.check_crcs,
        auto_offset_reset=config.auto_offset_reset,
        client_rack=config.client_rack,
        request_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
        key_deserializer=config.key_deserializer,
        value_deserializer=config.value_deserializer,
    )
