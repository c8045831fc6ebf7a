"""Changing the configs of topics, brokers and groups, the old way and the new. In effect at once, and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.broker.config_keys import GROUP_KEYS
from kohort.broker.config_resources import (
    BROKER,
    GROUP,
    TOPIC,
    check_broker,
    check_group_configs,
    existing_topic,
    unsupported_type,
)
from kohort.broker.topics import MIN_ISR
from kohort.config_key import ConfigError, ConfigKey, ConfigType
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.storage.config import CONFIG_KEYS, LogConfig

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

SET, DELETE, APPEND, SUBTRACT = range(4)
REFUSED_AT_ONCE = 500


class Resource(NamedTuple):
    """What is set on a resource now, as text, and what becomes of it."""

    keys: Mapping[str, ConfigKey]
    current: Mapping[str, str]
    default: Callable[[str], tuple[str, ...]]
    """The value of a list that is not set on the resource itself."""
    change: Callable[[Mapping[str, str], bool], None]
    """Check new values, all of them; unless only that is asked for, put them in effect."""
    fixed: tuple[str, ...] = ()
    """Eligible leader replicas (KIP-966) need some in one value for the whole cluster: not to be named here."""


def alter_configs(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    """The old way: what is not named goes back to its default."""
    return _alter(core, request, messages.AlterConfigsResponse(), _replaced)


def incremental_alter_configs(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    """The new way: only what is named changes (KIP-339)."""
    return _alter(core, request, messages.IncrementalAlterConfigsResponse(), _operated)


def _alter(core: Core, request: Any, response: Any, new_values: Callable[[Resource, Any], dict[str, str]]) -> Steps:
    """What is changed is written each time: others have a turn after it."""
    times = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    for number, asked in enumerate(request.resources, 1):
        if number % REFUSED_AT_ONCE == 0:
            yield
        row = response.AlterConfigsResourceResponse(
            resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
        )
        response.responses.append(row)
        try:
            _check_once(times, asked)
            resource = _resource(core, asked.resource_type, asked.resource_name)
            for config in asked.configs:
                if config.name in resource.fixed:
                    raise ConfigError(f"Broker-level {config.name} cannot be altered while ELR is enabled.")
            resource.change(new_values(resource, asked), request.validate_only)
            if number < len(request.resources):
                yield
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
        except ConfigError as error:
            row.error_code, row.error_message = ErrorCode.INVALID_CONFIG, str(error)
    return response


def _check_once(times: Counter[tuple[int, str]], asked: Any) -> None:
    if times[asked.resource_type, asked.resource_name] > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    twice = [name for name, count in Counter(config.name for config in asked.configs).items() if count > 1]
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}")


# What the request makes of the values.


def _replaced(resource: Resource, asked: Any) -> dict[str, str]:
    return {config.name: _value(config) for config in asked.configs}


def _operated(resource: Resource, asked: Any) -> dict[str, str]:
    new = dict(resource.current)
    for config in asked.configs:
        operation = config.config_operation
        if operation == DELETE:
            new.pop(config.name, None)
        elif operation == SET:
            new[config.name] = _value(config)
        elif operation in (APPEND, SUBTRACT):
            new[config.name] = _edited_list(resource, config, new)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}")
    return new


def _value(config: Any) -> str:
    if config.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
    return str(config.value)


def _edited_list(resource: Resource, config: Any, current: Mapping[str, str]) -> str:
    given = [item.strip() for item in _value(config).split(",") if item.strip()]
    key = resource.keys.get(config.name)
    if key is None or key.type is not ConfigType.LIST:
        operation = "APPEND" if config.config_operation == APPEND else "SUBTRACT"
        raise ConfigError(f"Can't {operation} to key {config.name} because its type is not LIST.")
    items = list(key.parse(current[config.name]) if config.name in current else resource.default(config.name))
    if config.config_operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


# The resources.


def _resource(core: Core, resource_type: int, name: str) -> Resource:
    if resource_type == TOPIC:
        return _topic(core, name)
    if resource_type == BROKER:
        return _broker(core, name)
    if resource_type == GROUP:
        return _group(core, name)
    raise unsupported_type(resource_type)


def _topic(core: Core, name: str) -> Resource:
    topic = existing_topic(core, name)

    def change(new: Mapping[str, str], validate_only: bool) -> None:
        LogConfig.parse(new, core.topics.base_config)
        if not validate_only:
            core.topics.set_overrides(topic, new)

    return Resource(CONFIG_KEYS, topic.overrides, core.topics.base_config.get, change)


def _broker(core: Core, name: str) -> Resource:
    check_broker(core, name)
    values = core.config.dynamic if name else core.config.cluster
    current = core.config.texts(values)

    def change(new: Mapping[str, str], validate_only: bool) -> None:
        fixed = [config for config in new if not core.config.key(config).dynamic and new[config] != current.get(config)]
        if fixed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            )
        parsed = core.config.parse(new)
        if not name and MIN_ISR not in new:
            raise ConfigError(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
        if not validate_only:
            core.topics.set_broker_overrides(**{"dynamic" if name else "cluster": parsed})

    return Resource(core.config.keys, current, core.config.__getitem__, change, (MIN_ISR,) if name else ())


def _group(core: Core, name: str) -> Resource:
    def change(new: Mapping[str, str], validate_only: bool) -> None:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        check_group_configs(core.config, new)
        if not validate_only:
            core.topics.set_group_overrides(name, new)

    return Resource(GROUP_KEYS, core.topics.group_overrides.get(name, {}), lambda config: (), change)
