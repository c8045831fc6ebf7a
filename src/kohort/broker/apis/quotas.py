"""DescribeClientQuotas and AlterClientQuotas: what clients may use. What that means is in `broker/quotas.py`."""

from __future__ import annotations

import math
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from kohort.broker.quotas import CLIENT_ID, CONNECTIONS, FETCH, IP, MUTATIONS, PRODUCE, REQUEST_TIME, USER, Entity
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

EXACT, DEFAULT, ANY = 0, 1, 2
REFUSED_AT_ONCE = 500
_OF_CLIENTS = (PRODUCE, FETCH, REQUEST_TIME, MUTATIONS)
_KEYS = {USER: _OF_CLIENTS, CLIENT_ID: _OF_CLIENTS, IP: (CONNECTIONS,)}
_WHOLE = (PRODUCE, FETCH, CONNECTIONS)


def describe_client_quotas(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.DescribeClientQuotasResponse(entries=[])
    try:
        wanted = _filters(request.components)
    except KafkaError as error:
        response.error_code, response.error_message, response.entries = error.code, error.message, None
        return response
    for number, (entity, limits) in enumerate(list(core.quotas.limits.items()), 1):
        if number % REFUSED_AT_ONCE == 0:
            yield
        names = dict(entity)
        if request.strict and names.keys() != wanted.keys():
            continue
        if all(kind in names and _matches(names[kind], *how) for kind, how in wanted.items()):
            response.entries.append(_entry(response, entity, limits))
    return response


def _filters(components: list[Any]) -> dict[str, tuple[int, str | None]]:
    wanted: dict[str, tuple[int, str | None]] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if kind not in _KEYS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in wanted:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate {kind} filter component entity type")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected match type: {component.match_type}")
        wanted[kind] = (component.match_type, component.match)
    if IP in wanted and len(wanted) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid entity filter component combination, IP filter component ")
    return wanted


def _matches(name: str | None, match_type: int, match: str | None) -> bool:
    return match_type == ANY or name == (match if match_type == EXACT else None)


def _entry(response: Any, entity: Entity, limits: dict[str, float]) -> Any:
    return response.EntryData(
        entity=[response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[response.ValueData(key=key, value=value) for key, value in sorted(limits.items())],
    )


def alter_client_quotas(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    """What is changed is written each time: others have a turn after it."""
    response = messages.AlterClientQuotasResponse()
    for number, asked in enumerate(request.entries, 1):
        if number % REFUSED_AT_ONCE == 0:
            yield
        row = response.EntryData(
            error_message=None,
            entity=[response.EntityData(entity_type=e.entity_type, entity_name=e.entity_name) for e in asked.entity],
        )
        response.entries.append(row)
        try:
            entity = _entity(asked.entity)
            changes = {op.key: None if op.remove else _value(entity, op.key, op.value) for op in asked.ops}
            if not request.validate_only:
                core.quotas.change({entity: changes})
                if number < len(request.entries):
                    yield
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
    return response


def _entity(parts: list[Any]) -> Entity:
    if not parts:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    names: dict[str, str | None] = {}
    for part in parts:
        if part.entity_type not in _KEYS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Empty {part.entity_type} not supported")
        if part.entity_type in names:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate entity type {part.entity_type}")
        names[part.entity_type] = part.entity_name
    if IP in names and len(names) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        )
    if names.get(IP) is not None:
        _check_address(str(names[IP]))
    return tuple(sorted(names.items()))


def _check_address(text: str) -> None:
    """Kafka also takes names that it can resolve: a broker that asks the net here would keep others waiting."""
    try:
        ip_address(text)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text} is not a valid IP or resolvable host.") from None


def _value(entity: Entity, key: str, value: float) -> float:
    if key not in _KEYS[entity[0][0]]:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not math.isfinite(value) or value <= 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if key in _WHOLE and value != int(value):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")
    return value
