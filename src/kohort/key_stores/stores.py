"""Java's stores of keys and certificates as PEM: PEM as it is, JKS by jks.py, PKCS#12 through `cryptography`.

Bytes in, PEM out: no files are opened in here.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.config_key import ConfigError
from kohort.key_stores import jks

_PEM = b"-----BEGIN "


@dataclass(frozen=True, slots=True)
class Store:
    """`key` is empty in a store of trusted certificates alone."""

    certificates: bytes
    key: bytes = b""
    authorities: bytes = b""
    """What a PKCS#12 store holds beside its own certificate."""


def read_store(content: bytes, password: str | None, name: str, key_password: str | None = None) -> Store:
    """`name` is for errors; a JKS store may hide its key with a password of its own."""
    if content.lstrip().startswith(_PEM):
        return Store(_blocks(content, b"CERTIFICATE"), _blocks(content, b"PRIVATE KEY"))
    if content[:4] in jks.MAGIC:
        return _jks(content, password, name, key_password)
    return _pkcs12(content, password, name)


def _jks(content: bytes, password: str | None, name: str, key_password: str | None) -> Store:
    try:
        found = jks.read_jks(content, password, key_password)
    except jks.Unreadable as error:
        kind = jks.MAGIC[content[:4]]
        raise ConfigError(
            f"{name} cannot be read as a {kind} store: {error}. keytool can convert one: keytool -importkeystore "
            f"-srckeystore {name} -destkeystore {name}.p12 -deststoretype PKCS12"
        ) from None
    others = b"".join([*found.chain[1:], *found.authorities])
    return Store(b"".join([*found.chain, *found.authorities]), found.key, others if found.key else b"")


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
