"""Java's old store of keys and certificates, JKS, as PEM: what keytool wrote before Java 9. Bytes in, PEM out.

Certificates lie open in it, under a digest with the password; a key is hidden by a stream of SHA-1 digests, which needs
no library. Of JCEKS, which has ciphers of its own, only certificates are read.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

MAGIC = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_KEY, _CERTIFICATE = 1, 2
_SALT_OF_DIGEST = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_SEQUENCE, _OCTETS = 0x30, 0x04


class Unreadable(ValueError):
    """Why a store cannot be read."""


@dataclass(slots=True)
class Contents:
    """As PEM. The key is the store's first, with its chain; authorities are what the store trusts."""

    key: bytes = b""
    chain: list[bytes] = field(default_factory=list)
    authorities: list[bytes] = field(default_factory=list)


def read_jks(content: bytes, password: str | None, key_password: str | None = None) -> Contents:
    """Without a password nobody has checked the certificates, as in Java; a key cannot be read then."""
    kind = MAGIC[content[:4]]
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if password is not None and hashlib.sha1(_utf16(password) + _SALT_OF_DIGEST + body).digest() != digest:
        raise Unreadable("the password is wrong, or the store was changed")
    try:
        return _read(_Reader(body, 4), kind, key_password or password)
    except (UnicodeDecodeError, IndexError):
        raise Unreadable("it ends too early, or is damaged") from None


def _read(reader: _Reader, kind: str, password: str | None) -> Contents:
    version, count = reader.number(), reader.number()
    if version not in (1, 2):
        raise Unreadable(f"its version is {version}, and 1 and 2 are known")
    found = Contents()
    for _ in range(count):
        tag, alias = reader.number(), reader.text()
        reader.skip(8)
        if tag == _CERTIFICATE:
            found.authorities.append(reader.certificate(version))
        elif tag == _KEY and kind == "JKS":
            hidden = reader.block()
            chain = [reader.certificate(version) for _ in range(reader.number())]
            if not found.key:
                found.key, found.chain = _pem("PRIVATE KEY", _unhide(hidden, password, alias)), chain
        else:
            raise Unreadable(f"{alias} is a key as only Java reads it")
    return found


class _Reader:
    def __init__(self, content: bytes, position: int) -> None:
        self._content, self._position = content, position

    def skip(self, count: int) -> bytes:
        found = self._content[self._position : self._position + count]
        if len(found) < count:
            raise IndexError
        self._position += count
        return found

    def number(self) -> int:
        return int.from_bytes(self.skip(4))

    def text(self) -> str:
        return self.skip(int.from_bytes(self.skip(2))).decode()

    def block(self) -> bytes:
        return self.skip(self.number())

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()
        return _pem("CERTIFICATE", self.block())


def _unhide(wrapped: bytes, password: str | None, alias: str) -> bytes:
    """The PKCS#8 key within an EncryptedPrivateKeyInfo of Sun's own algorithm."""
    if password is None:
        raise Unreadable(f"the key {alias} needs a password")
    secret = _utf16(password)
    outer = [value for kind, value in _items(wrapped) if kind == _SEQUENCE]
    hidden = [value for kind, value in _items(b"".join(outer)) if kind == _OCTETS]
    if len(hidden) != 1 or len(hidden[0]) <= 2 * _DIGEST_BYTES:
        raise Unreadable(f"the key {alias} is damaged")
    salt, data, check = (
        hidden[0][:_DIGEST_BYTES],
        hidden[0][_DIGEST_BYTES:-_DIGEST_BYTES],
        hidden[0][-_DIGEST_BYTES:],
    )
    stream, link = bytearray(), salt
    while len(stream) < len(data):
        link = hashlib.sha1(secret + link).digest()
        stream += link
    key = bytes(a ^ b for a, b in zip(data, stream, strict=False))
    if hashlib.sha1(secret + key).digest() != check:
        raise Unreadable(f"the password of the key {alias} is wrong (ssl.key.password)")
    return key


def _items(content: bytes) -> Iterator[tuple[int, bytes]]:
    """(kind, value) of the ASN.1 items in a row."""
    reader = _Reader(content, 0)
    left = len(content)
    while left > 0:
        kind, size = reader.skip(2)
        left -= 2
        if size & 0x80:
            more = size & 0x7F
            size = int.from_bytes(reader.skip(more))
            left -= more
        yield kind, reader.skip(size)
        left -= size


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _pem(label: str, content: bytes) -> bytes:
    text = base64.b64encode(content).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]).encode()
