"""Kafka's uuids: 16 bytes, shown as base64 without padding."""

import base64

from kohort.protocol.schema import ZERO_UUID

__all__ = ["ZERO_UUID", "from_base64", "to_base64"]


def to_base64(uuid: bytes) -> str:
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def from_base64(text: str) -> bytes:
    uuid = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a Kafka uuid: 22 characters of base64 stand for 16 bytes")
    return uuid
