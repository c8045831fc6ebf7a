"""Admin: the blocking twin of AsyncAdmin, on a background thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kohort.client.admin_async import AsyncAdmin
from kohort.client.background import LoopThread, blocking
from kohort.client.errors import ConsumerClosedError


class Admin:
    """Topics, partitions, configurations, groups, offsets and transactions of any Kafka cluster. A context manager."""

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self._async = AsyncAdmin(config, **settings)
        self._thread: LoopThread | None = LoopThread("kohort admin")

    @property
    def config(self) -> Any:
        return self._async.config

    def _blocking_call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._thread is None:
            raise ConsumerClosedError("this admin was closed; create a new one")
        return self._thread.call(method(self._async, *args, **kwargs))

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._thread is not None:
            try:
                self._blocking_call(AsyncAdmin.close)
            finally:
                self._thread.close()
                self._thread = None

    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    api_versions = blocking(AsyncAdmin.api_versions)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    create_topics = blocking(AsyncAdmin.create_topics)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    delete_records = blocking(AsyncAdmin.delete_records)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    edit_config_list = blocking(AsyncAdmin.edit_config_list)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    remove_members = blocking(AsyncAdmin.remove_members)
    group_offsets = blocking(AsyncAdmin.group_offsets)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    hanging_transactions = blocking(AsyncAdmin.hanging_transactions)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    terminate_transaction = blocking(AsyncAdmin.terminate_transaction)
    end_transaction = blocking(AsyncAdmin.end_transaction)
