"""Java's stores of keys and certificates as PEM: PEM as it is, PKCS#12 through `cryptography`. Bytes in, PEM out.

No files are opened in here. JKS, which keytool wrote before Java 9, is refused with the command that converts it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.client.errors import ConfigError

_PEM = b"-----BEGIN "
_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


@dataclass(frozen=True, slots=True)
class Store:
    """`key` is empty in a store of trusted certificates alone."""

    certificates: bytes
    key: bytes = b""
    authorities: bytes = b""
    """What a PKCS#12 store holds beside its own certificate."""


def read_store(content: bytes, password: str | None, name: str) -> Store:
    """`name` is for errors."""
    if content.lstrip().startswith(_PEM):
        return Store(_blocks(content, b"CERTIFICATE"), _blocks(content, b"PRIVATE KEY"))
    if content[:4] in _JKS:
        raise ConfigError(
            f"{name} is a store in Java's old format JKS; convert it: keytool -importkeystore -srckeystore {name} "
            f"-destkeystore {name}.p12 -deststoretype PKCS12"
        )
    return _pkcs12(content, password, name)


def _blocks(content: bytes, kind: bytes) -> bytes:
    """The blocks whose label ends with `kind`, one after another."""
    found, lines, keep = [], content.splitlines(), False
    for line in lines:
        if line.startswith(_PEM):
            keep = line.rstrip(b"- ").endswith(kind)
        if keep:
            found.append(line)
        if line.startswith(b"-----END "):
            keep = False
    return b"\n".join(found) + b"\n" if found else b""


def _pkcs12(content: bytes, password: str | None, name: str) -> Store:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(f"{name} is a PKCS#12 store, which needs: pip install 'kohort[security]'") from None
    try:
        store = pkcs12.load_pkcs12(content, password.encode() if password else None)
    except ValueError as error:
        raise ConfigError(f"{name} cannot be opened as PEM or PKCS#12: {error}") from None
    pem = serialization.Encoding.PEM
    others = b"".join(held.certificate.public_bytes(pem) for held in store.additional_certs)
    if store.key is None:
        own = store.cert.certificate.public_bytes(pem) if store.cert else b""
        return Store(own + others)
    key = store.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    own = store.cert.certificate.public_bytes(pem) if store.cert else b""
    return Store(own + others, key, others)
