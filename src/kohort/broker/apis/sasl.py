"""SaslHandshake and SaslAuthenticate, and the users that SCRAM knows (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.scram import HASHES, MAX_ITERATIONS, MIN_ITERATIONS, ScramKeys, keys_of

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

USERS_AT_ONCE = 500
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_CODES = {name: code for code, name in _MECHANISMS.items()}


def sasl_handshake(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    guard = call.connection.guard
    if guard is None:
        return messages.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return guard.handshake(core, call, request)


def sasl_authenticate(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    guard = call.connection.guard
    if guard is None:
        return messages.SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    return guard.authenticate(core, call, request, now_ms)


def describe_users(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    response = messages.DescribeUserScramCredentialsResponse(error_message=None)
    known: dict[str, list[tuple[int, int]]] = {}
    for (user, mechanism), keys in sorted(core.users.scram.items()):
        known.setdefault(user, []).append((_CODES[mechanism], keys.iterations))
    asked = Counter(row.name for row in request.users) if request.users else Counter(sorted(known))
    for name, times in asked.items():
        row = response.DescribeUserScramCredentialsResult(user=name, error_message=None)
        response.results.append(row)
        if times > 1:
            row.error_code = ErrorCode.DUPLICATE_RESOURCE
            row.error_message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif name not in known:
            row.error_code = ErrorCode.RESOURCE_NOT_FOUND
            row.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        else:
            row.credential_infos = [
                response.CredentialInfo(mechanism=code, iterations=iterations) for code, iterations in known[name]
            ]
    return response


def alter_users(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.AlterUserScramCredentialsResponse()
    errors: dict[str, KafkaError | None] = {}
    changes: dict[tuple[str, str], ScramKeys | None] = {}
    rows = [*((row, False) for row in request.deletions), *((row, True) for row in request.upsertions)]
    for number, (row, sets) in enumerate(rows, 1):
        if number % USERS_AT_ONCE == 0:
            yield
        try:
            if row.name in errors:
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in a request")
            who, keys = _change(core, row, sets)
            changes[who] = keys
            errors[row.name] = None
        except KafkaError as error:
            errors[row.name] = errors.get(row.name) or error
    try:
        core.users.change({who: keys for who, keys in changes.items() if errors[who[0]] is None})
    except KafkaError as error:
        errors = {name: failed or error for name, failed in errors.items()}
    for name, failed in errors.items():
        result = response.AlterUserScramCredentialsResult(user=name, error_message=None)
        if failed is not None:
            result.error_code, result.error_message = failed.code, failed.message
        response.results.append(result)
    return response


def _change(core: Core, row: Any, sets: bool) -> tuple[tuple[str, str], ScramKeys | None]:
    if not row.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = _MECHANISMS.get(row.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if not sets:
        if (row.name, mechanism) not in core.users.scram:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return (row.name, mechanism), None
    if row.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if row.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    assert mechanism in HASHES
    return (row.name, mechanism), keys_of(mechanism, bytes(row.salted_password), bytes(row.salt), row.iterations)
