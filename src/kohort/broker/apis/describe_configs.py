"""DescribeConfigs and ListConfigResources: what topics, brokers and groups are configured to be, and who is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.broker.config_resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    check_broker,
    existing_topic,
    unsupported_type,
)
from kohort.broker.config_rows import Row, broker_rows, cluster_rows, group_rows, topic_rows
from kohort.broker.long_work import check_answer
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

RESOURCES_AT_ONCE = 5
_LISTED = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)


def describe_configs(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.DescribeConfigsResponse()
    encoded = response.rows(response.DescribeConfigsResult.__name__, call.version)
    for number, resource in enumerate(request.resources, 1):
        if number % RESOURCES_AT_ONCE == 0:
            encoded.add(response.results)  # rows as objects take many times the room of their bytes
            response.results.clear()
            check_answer(encoded.size)
            yield
        result = response.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.results.append(result)
        try:
            rows = _rows(core, resource.resource_type, resource.resource_name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        names = None if resource.configuration_keys is None else set(resource.configuration_keys)
        result.configs = [_shown(row, request) for row in rows if names is None or row.key.name in names]
    if encoded:
        encoded.add(response.results)
        response.results = encoded
    return response


def _rows(core: Core, resource_type: int, name: str) -> list[Row]:
    if resource_type == TOPIC:
        topic = existing_topic(core, name)
        return topic_rows(core.config, topic.config, topic.overrides)
    if resource_type == BROKER:
        check_broker(core, name)
        return broker_rows(core.config) if name else cluster_rows(core.config)
    if resource_type == GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_rows(core.config, core.topics.group_overrides.get(name, {}))
    raise unsupported_type(resource_type)


def _shown(row: Row, request: Any) -> Any:
    synonym = messages.DescribeConfigsResponse.DescribeConfigsSynonym
    return messages.DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=row.key.name,
        value=row.value,
        read_only=row.read_only,
        config_source=row.source,
        is_sensitive=row.key.sensitive,
        config_type=row.key.type,
        synonyms=[synonym(name=s.name, value=s.value, source=s.source) for s in row.synonyms]
        if request.include_synonyms
        else [],
        documentation=row.key.doc if request.include_documentation else None,
    )


def list_config_resources(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    """Version 0 was about client metrics alone, of which there are none here."""
    wanted = {CLIENT_METRICS} if call.version == 0 else set(request.resource_types) or set(_LISTED)
    if not wanted <= set(_LISTED):
        return messages.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names = {GROUP: core.topics.group_overrides, BROKER: [str(core.node_id)], TOPIC: core.topics.by_name}
    row = messages.ListConfigResourcesResponse.ConfigResource
    return messages.ListConfigResourcesResponse(
        config_resources=[
            row(resource_name=name, resource_type=kind)
            for kind in _LISTED
            if kind in wanted
            for name in names.get(kind, ())
        ]
    )
