"""ApiVersions: what this broker serves, read off the table of apis."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kohort.broker.apis import features
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
API_VERSIONS = 18
# Older librdkafka compresses only where Produce 0 is offered, though it never uses it; so does Kafka (KAFKA-18659).
_SHOWN_MIN = {0: 0}


def handle(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    if call.version >= 3:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE_NAME.fullmatch(text) for text in software):
            return messages.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        call.connection.software = " ".join(software)
    response = messages.ApiVersionsResponse(api_keys=_ranges(core, sorted(core.table.apis)))
    if call.version >= 3:
        features.add_to(core, response, call.version)
    return response


def unsupported(core: Core) -> Any:
    """The answer to a version from the future: which versions of ApiVersions there are (KIP-511)."""
    return messages.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges(core, [API_VERSIONS])
    )


def _ranges(core: Core, keys: list[int]) -> list[Any]:
    shown = messages.ApiVersionsResponse.ApiVersion
    rows = (core.table.apis[key] for key in keys)
    return [
        shown(api_key=row.key, min_version=_SHOWN_MIN.get(row.key, row.min_version), max_version=row.max_version)
        for row in rows
    ]
