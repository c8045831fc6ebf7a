"""DescribeAcls, CreateAcls, DeleteAcls: the entries of `broker/acls.py`, kept in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.broker.acls import CLUSTER_NAME, OPERATIONS, Acl, Filter, Operation, Pattern, Permission, Resource
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.access import Access
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

_DISABLED = "No Authorizer is configured."
ROWS_AT_ONCE = 500
COMPARED_AT_ONCE = 5_000
MOST_AT_ONCE = 10_000


def describe_acls(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.DescribeAclsResponse(error_message=None)
    try:
        access, wanted = _access(core), _filter(request, call.version)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
        return response
    resources: dict[tuple[int, str, int], Any] = {}
    for number, acl in enumerate(list(access.acls), 1):
        if number % COMPARED_AT_ONCE == 0:
            yield
        if wanted.means(acl):
            key = (acl.resource, acl.name, acl.pattern)
            if key not in resources:
                resources[key] = response.DescribeAclsResource(
                    resource_type=acl.resource, resource_name=acl.name, pattern_type=acl.pattern
                )
            resources[key].acls.append(
                response.AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
            )
    response.resources = list(resources.values())
    return response


def create_acls(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.CreateAclsResponse()
    good = []
    for number, creation in enumerate(request.creations, 1):
        if number % ROWS_AT_ONCE == 0:
            yield
        row = response.AclCreationResult(error_message=None)
        response.results.append(row)
        try:
            _access(core)
            good.append(_acl(creation, call.version))
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
    try:
        _check_size(len(good))
        if good:
            _access(core).change(add=good)
    except KafkaError as error:
        for row in response.results:
            row.error_code, row.error_message = error.code, error.message
    return response


def delete_acls(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.DeleteAclsResponse()
    doomed: dict[Acl, None] = {}
    compared = matched = 0
    for asked in request.filters:
        if compared > COMPARED_AT_ONCE:
            compared = 0
            yield
        row = response.DeleteAclsFilterResult(error_message=None)
        response.filter_results.append(row)
        try:
            wanted = _filter(asked, call.version)
            entries = _access(core).acls.candidates(wanted)
            compared += 1 + len(entries)
            found = [acl for acl in entries if wanted.means(acl)]
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
            continue
        doomed |= dict.fromkeys(found)
        compared += len(found)
        matched += len(found)
        if matched > MOST_AT_ONCE:
            break
        row.matching_acls = [
            response.DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in found
        ]
    try:
        _check_size(matched)
        if doomed:
            _access(core).change(remove=doomed)
    except KafkaError as error:
        refused = response.DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
        response.filter_results = [refused] * len(request.filters)
    return response


def _check_size(changed: int) -> None:
    """As Kafka's controller: all of it, or, where it is too much, nothing."""
    if changed > MOST_AT_ONCE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Unable to perform excessively large batch operation.")


def _access(core: Core) -> Access:
    if core.gate is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, _DISABLED)
    return core.access


def _filter(row: Any, version: int) -> Filter:
    wanted = Filter(
        row.resource_type_filter,
        row.resource_name_filter,
        row.pattern_type_filter if version >= 1 else Pattern.LITERAL,
        row.principal_filter,
        row.host_filter,
        row.operation,
        row.permission_type,
    )
    known = (
        0 < wanted.resource <= Resource.USER
        and 0 < wanted.pattern <= Pattern.PREFIXED
        and 0 < wanted.operation <= Operation.TWO_PHASE_COMMIT
        and 0 < wanted.permission <= Permission.ALLOW
    )
    if not known:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The filter contains unknown elements.")
    return wanted


def _acl(row: Any, version: int) -> Acl:
    pattern = row.resource_pattern_type if version >= 1 else Pattern.LITERAL
    try:
        made = Acl(
            row.principal,
            Operation(row.operation),
            Resource(row.resource_type),
            row.resource_name,
            Pattern(pattern),
            Permission(row.permission_type),
            row.host,
        )
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The creation contains unknown elements.") from None
    reason = _unusable(made)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return made


def _unusable(acl: Acl) -> str | None:
    if acl.resource not in OPERATIONS or acl.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        return f"Invalid resource type or pattern type: {acl.resource.name}, {acl.pattern.name}"
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation: {acl.operation.name}"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permission type: {acl.permission.name}"
    if acl.resource == Resource.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Resource name should not be empty"
    if ":" not in acl.principal:
        return f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type)"
    return None
