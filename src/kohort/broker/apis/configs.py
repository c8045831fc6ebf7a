"""Describing and changing the configs of topics and of the broker. A change is in effect at once and stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kohort.broker.config import ConfigError, ConfigSource, ConfigType
from kohort.broker.config_keys import TOPIC_DOCS
from kohort.broker.topic_configs import config_synonym
from kohort.broker.topics import Topic, check_name
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.storage.config import CONFIG_KEYS, LogConfig

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core

TOPIC = 2
BROKER = 4
SET, DELETE, APPEND, SUBTRACT = range(4)

Row = tuple[str, str | None, int, list[tuple[str, str | None, int]]]
"""(name, value, source, synonyms in the order in which they apply)."""


def describe_configs(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    response = messages.DescribeConfigsResponse()
    for resource in request.resources:
        result = response.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.results.append(result)
        try:
            result.configs = list(_describe(core, resource, request))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return response


def _describe(core: Core, resource: Any, request: Any) -> Iterator[Any]:
    if resource.resource_type == TOPIC:
        topic = _topic(core, resource.resource_name)
        rows, keys = topic_rows(core, topic.config, topic.overrides), CONFIG_KEYS
    elif resource.resource_type == BROKER:
        _check_broker(core, resource.resource_name)
        rows, keys = _broker_rows(core, default=resource.resource_name == ""), core.config.keys
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")
    wanted = None if resource.configuration_keys is None else set(resource.configuration_keys)
    shape, synonym = messages.DescribeConfigsResponse.DescribeConfigsResourceResult, None
    synonym = messages.DescribeConfigsResponse.DescribeConfigsSynonym
    for name, value, source, synonyms in rows:
        if wanted is not None and name not in wanted:
            continue
        key = keys[name]
        yield shape(
            name=name,
            value=value,
            read_only=resource.resource_type == BROKER and not core.config.keys[name].dynamic,
            config_source=source,
            config_type=ConfigType[key.type.name],
            synonyms=[synonym(name=n, value=v, source=s) for n, v, s in synonyms] if request.include_synonyms else [],
            documentation=_doc(core, resource.resource_type, name) if request.include_documentation else None,
        )


def _doc(core: Core, resource_type: int, name: str) -> str:
    return TOPIC_DOCS[name] if resource_type == TOPIC else core.config.keys[name].doc


def _topic(core: Core, name: str) -> Topic:
    check_name(name)
    topic = core.topics.by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _check_broker(core: Core, name: str) -> None:
    if name not in ("", str(core.node_id)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {core.node_id} or empty string, but received {name}",
        )


def topic_rows(core: Core, config: LogConfig, overrides: Mapping[str, str]) -> list[Row]:
    """Every config of a topic with where its value comes from."""
    rows: list[Row] = []
    for name, key in CONFIG_KEYS.items():
        value, synonyms = key.format(config.get(name)), []
        if name in overrides:
            synonyms.append((name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        synonym = config_synonym(core.config, name)
        if synonym is not None:
            if core.config.is_set(synonym):
                text = core.config.keys[synonym].text(core.config[synonym])
                synonyms.append((synonym, text, core.config.source(synonym)))
            default = core.config.keys[synonym]
            synonyms.append((synonym, default.text(default.default), ConfigSource.DEFAULT_CONFIG))
        source = synonyms[0][2] if synonyms else ConfigSource.DEFAULT_CONFIG
        rows.append((name, value, source, synonyms))
    return rows


def _broker_rows(core: Core, default: bool) -> list[Row]:
    """The broker's configs; the cluster-wide default resource holds only what was set dynamically."""
    config, rows = core.config, []
    for name, key in config.keys.items():
        if default and name not in config.dynamic:
            continue
        synonyms: list[tuple[str, str | None, int]] = []
        if name in config.dynamic:
            synonyms.append((name, key.text(config.dynamic[name]), ConfigSource.DYNAMIC_BROKER_CONFIG))
        if name in config.given:
            synonyms.append((name, key.text(config.given[name]), ConfigSource.STATIC_BROKER_CONFIG))
        if key.default is not None:
            synonyms.append((name, key.text(key.default), ConfigSource.DEFAULT_CONFIG))
        rows.append((name, key.text(config[name]), config.source(name), synonyms))
    return rows


# Changing.


def alter_configs(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    """The old way: what is not named goes back to its default."""
    response = messages.AlterConfigsResponse()
    for resource, row in _resources(request, response):
        try:
            _check_once(request, resource)
            new = {config.name: _value(config) for config in resource.configs}
            _apply(core, resource, new, request.validate_only)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
    return response


def incremental_alter_configs(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    """The new way: only what is named changes (KIP-339)."""
    response = messages.IncrementalAlterConfigsResponse()
    for resource, row in _resources(request, response):
        try:
            _check_once(request, resource)
            new = _operated(core, resource)
            _apply(core, resource, new, request.validate_only)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
    return response


def _resources(request: Any, response: Any) -> Iterator[tuple[Any, Any]]:
    for resource in request.resources:
        row = response.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(row)
        yield resource, row


def _check_once(request: Any, resource: Any) -> None:
    same = [r for r in request.resources if (r.resource_type, r.resource_name) == _identity(resource)]
    if len(same) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    twice = [name for name, count in Counter(config.name for config in resource.configs).items() if count > 1]
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}")


def _identity(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _value(config: Any) -> str:
    if config.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
    return config.value


def _current(core: Core, resource: Any) -> dict[str, str]:
    if resource.resource_type == TOPIC:
        return dict(_topic(core, resource.resource_name).overrides)
    if resource.resource_type == BROKER:
        _check_broker(core, resource.resource_name)
        return {name: core.config.key(name).text(value) or "" for name, value in core.config.dynamic.items()}
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def _operated(core: Core, resource: Any) -> dict[str, str]:
    new = _current(core, resource)
    for config in resource.configs:
        name, operation = config.name, config.config_operation
        if operation == DELETE:
            new.pop(name, None)
        elif operation == SET:
            new[name] = _value(config)
        elif operation in (APPEND, SUBTRACT):
            new[name] = _edited_list(core, resource, config, new)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}")
    return new


def _edited_list(core: Core, resource: Any, config: Any, current: Mapping[str, str]) -> str:
    keys: Mapping[str, Any] = CONFIG_KEYS if resource.resource_type == TOPIC else core.config.keys
    key = keys.get(config.name)
    if key is None or key.type.name != "LIST":
        operation = "APPEND" if config.config_operation == APPEND else "SUBTRACT"
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation} to key {config.name} because its type is not LIST."
        )
    if config.name in current:
        items = [item for item in current[config.name].split(",") if item]
    elif resource.resource_type == TOPIC:
        items = list(core.topics.base_config.get(config.name))
    else:
        items = list(core.config[config.name])
    given = [item.strip() for item in _value(config).split(",") if item.strip()]
    if config.config_operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def _apply(core: Core, resource: Any, new: Mapping[str, str], validate_only: bool) -> None:
    if resource.resource_type == TOPIC:
        topic = _topic(core, resource.resource_name)
        LogConfig.parse(new, core.topics.base_config)
        if not validate_only:
            core.topics.set_overrides(topic, new)
        return
    _current(core, resource)
    overrides = _parse_broker(core, new)
    if not validate_only:
        core.topics.set_broker_overrides(overrides)


def _parse_broker(core: Core, new: Mapping[str, str]) -> dict[str, Any]:
    parsed = {}
    for name, raw in new.items():
        try:
            key = core.config.key(name)
            parsed[name] = key.parse(raw)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if not key.dynamic:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {name}")
    return parsed
