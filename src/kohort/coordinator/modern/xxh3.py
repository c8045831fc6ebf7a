"""XXH3, 64 bits, without a seed: the hash that Kafka takes of the topics of a group. A function on bytes.

Written out here as no dependency at hand has it (cramjam's codecs keep theirs to themselves) and it is taken once per
change of a topic.
"""

from __future__ import annotations

from struct import Struct, unpack_from

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_MASK = 2**64 - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_LANES = Struct("<8Q").unpack_from
_SECRETS = [_LANES(_SECRET, 8 * stripe) for stripe in range(16)]
_SCRAMBLE, _LAST = _LANES(_SECRET, 128), _LANES(_SECRET, 121)


def xxh3_64(data: bytes) -> int:
    """As an unsigned number."""
    size = len(data)
    if size <= 16:
        return _short(data, size)
    if size <= 128:
        return _to_128(data, size)
    return _to_240(data, size) if size <= 240 else _long(data, size)


def _u64(data: bytes, at: int) -> int:
    number: int = unpack_from("<Q", data, at)[0]
    return number


def _u32(data: bytes, at: int) -> int:
    number: int = unpack_from("<I", data, at)[0]
    return number


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & _MASK


def _avalanche(h: int) -> int:
    h = ((h ^ h >> 37) * _MX1) & _MASK
    return h ^ h >> 32


def _xxh64_avalanche(h: int) -> int:
    h = ((h ^ h >> 33) * _P2) & _MASK
    h = ((h ^ h >> 29) * _P3) & _MASK
    return h ^ h >> 32


def _swap64(number: int) -> int:
    return int.from_bytes(number.to_bytes(8, "little"), "big")


def _short(data: bytes, size: int) -> int:
    if size > 8:
        low = _u64(data, 0) ^ (_u64(_SECRET, 24) ^ _u64(_SECRET, 32))
        high = _u64(data, size - 8) ^ (_u64(_SECRET, 40) ^ _u64(_SECRET, 48))
        return _avalanche((size + _swap64(low) + high + _fold(low, high)) & _MASK)
    if size >= 4:
        keyed = (_u32(data, size - 4) + (_u32(data, 0) << 32)) ^ (_u64(_SECRET, 8) ^ _u64(_SECRET, 16))
        keyed ^= (keyed << 49 | keyed >> 15) & _MASK ^ (keyed << 24 | keyed >> 40) & _MASK
        keyed = (keyed * _MX2) & _MASK
        keyed ^= (keyed >> 35) + size
        keyed = (keyed * _MX2) & _MASK
        return keyed ^ keyed >> 28
    if size:
        mixed = data[0] << 16 | data[size >> 1] << 24 | data[size - 1] | size << 8
        return _xxh64_avalanche(mixed ^ (_u32(_SECRET, 0) ^ _u32(_SECRET, 4)))
    return _xxh64_avalanche(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mix(data: bytes, at: int, secret: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret), _u64(data, at + 8) ^ _u64(_SECRET, secret + 8))


def _to_128(data: bytes, size: int) -> int:
    h = size * _P1
    for step in reversed(range((size - 1) // 32 + 1)):
        h += _mix(data, 16 * step, 32 * step) + _mix(data, size - 16 * (step + 1), 32 * step + 16)
    return _avalanche(h & _MASK)


def _to_240(data: bytes, size: int) -> int:
    h = size * _P1
    for step in range(8):
        h += _mix(data, 16 * step, 16 * step)
    h = _avalanche(h & _MASK)
    for step in range(8, size // 16):
        h += _mix(data, 16 * step, 16 * (step - 8) + 3)
    return _avalanche((h + _mix(data, size - 16, 136 - 17)) & _MASK)


def _long(data: bytes, size: int) -> int:
    lanes = [_P32_3, _P1, _P2, _P3, _P4, _P32_2, _P5, _P32_1]
    stripes = (size - 1) // 64
    for stripe in range(stripes):
        _accumulate(lanes, _LANES(data, 64 * stripe), _SECRETS[stripe % 16])
        if stripe % 16 == 15:
            for i, key in enumerate(_SCRAMBLE):
                lane = lanes[i]
                lanes[i] = ((lane ^ lane >> 47 ^ key) * _P32_1) & _MASK
    _accumulate(lanes, _LANES(data, size - 64), _LAST)
    h = size * _P1
    for i in range(4):
        h += _fold(lanes[2 * i] ^ _u64(_SECRET, 11 + 16 * i), lanes[2 * i + 1] ^ _u64(_SECRET, 19 + 16 * i))
    return _avalanche(h & _MASK)


def _accumulate(lanes: list[int], values: tuple[int, ...], secret: tuple[int, ...]) -> None:
    for i in range(8):
        value = values[i]
        keyed = value ^ secret[i]
        lanes[i] = (lanes[i] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK
        lanes[i ^ 1] = (lanes[i ^ 1] + value) & _MASK
