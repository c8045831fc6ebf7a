"""Kafka's uuids: 16 bytes, shown as base64 without padding; and those of RFC 9562, which members have in their ids."""

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


def random_uuid(chance: bytes) -> str:
    """Sixteen random bytes as a uuid of version 4, without the standard library's module, which is slow to import."""
    number = int.from_bytes(chance, "big") & ~(0xF << 76) & ~(0x3 << 62) | 4 << 76 | 2 << 62
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
