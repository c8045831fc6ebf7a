"""SCRAM (RFC 5802), both sides of an exchange and what a broker keeps of a password. No I/O, no chance, no state.

A client proves that it knows the password, a broker that it knows what was kept of it; neither shows it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
"""Of what a broker keeps."""
MOST_ITERATIONS = 1_000_000
"""What a client computes for a broker that asks for it: some tenths of a second."""


class ScramError(ValueError):
    """The other side says what is not SCRAM, or what cannot be right. No secrets in the message."""


class ScramKeys(NamedTuple):
    """What is kept of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def keys_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramKeys:
    client_key = _hmac(mechanism, salted, b"Client Key")
    return ScramKeys(salt, iterations, _hash(mechanism, client_key), _hmac(mechanism, salted, b"Server Key"))


def _hmac(mechanism: str, key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, HASHES[mechanism]).digest()


def _hash(mechanism: str, data: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], data).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _fields(message: bytes) -> dict[str, str]:
    try:
        return dict(part.split("=", 1) for part in message.decode().split(","))
    except ValueError:
        raise ScramError("a SCRAM message cannot be read") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("a SCRAM message holds what is not base64") from None


class ScramClient:
    """The client's side of one exchange."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = _fields(server_first)
        if not fields["r"].startswith(self._nonce):
            raise ScramError("the broker answered another SCRAM exchange")
        salt, rounds = _decoded(fields["s"]), int(fields["i"])
        if not MIN_ITERATIONS <= rounds <= MOST_ITERATIONS:
            raise ScramError(f"the broker asks for {rounds} iterations, not {MIN_ITERATIONS} to {MOST_ITERATIONS}")
        salted = salted_password(self._mechanism, self._password, salt, rounds)
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        signature = _hmac(self._mechanism, _hash(self._mechanism, client_key), message)
        self._signature = _hmac(self._mechanism, _hmac(self._mechanism, salted, b"Server Key"), message)
        proof = base64.b64encode(_xor(client_key, signature)).decode()
        return f"{without_proof},p={proof}".encode()

    def check(self, server_final: bytes) -> None:
        fields = _fields(server_final)
        if not hmac.compare_digest(_decoded(fields.get("v", "")), self._signature):
            raise ScramError("the broker does not know the password it claims to know")


class ScramServer:
    """The broker's side of one exchange: `read_first`, `first` with the user's keys, `final`."""

    def __init__(self, mechanism: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._own_nonce = nonce
        self._bare = self._nonce = self._said = ""
        self._header = ""
        self._keys: ScramKeys | None = None

    def read_first(self, message: bytes) -> str:
        """The name of the user who wants in."""
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise ScramError("a SCRAM message cannot be read") from None
        if not text.startswith(("n,", "y,")) or text.count(",") < 3:
            raise ScramError("channel binding is not supported")
        flag, authorization, self._bare = text.split(",", 2)
        self._header = f"{flag},{authorization},"
        fields = _fields(self._bare.encode())
        name, self._nonce = fields.get("n", ""), fields.get("r", "")
        if not name or not self._nonce:
            raise ScramError("a SCRAM message lacks its name or its nonce")
        name = name.replace("=2C", ",").replace("=3D", "=")
        if authorization not in ("", f"a={fields['n']}"):
            raise ScramError("nobody can act for somebody else")
        return name

    def first(self, keys: ScramKeys) -> bytes:
        self._keys = keys
        salt = base64.b64encode(keys.salt).decode()
        self._said = f"r={self._nonce}{self._own_nonce},s={salt},i={keys.iterations}"
        return self._said.encode()

    def final(self, message: bytes) -> bytes | None:
        """What proves the broker; None where the client does not know the password."""
        assert self._keys is not None
        fields = _fields(message)
        if fields.get("r") != self._nonce + self._own_nonce:
            raise ScramError("the client answered another SCRAM exchange")
        if _decoded(fields.get("c", "")) != self._header.encode():
            raise ScramError("channel binding is not supported")
        without_proof = message[: message.rindex(b",p=")].decode()
        told = f"{self._bare},{self._said},{without_proof}".encode()
        proof = _decoded(fields.get("p", ""))
        signature = _hmac(self._mechanism, self._keys.stored_key, told)
        if len(proof) != len(signature):
            raise ScramError("a proof has another length")
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(_hash(self._mechanism, client_key), self._keys.stored_key):
            return None
        return b"v=" + base64.b64encode(_hmac(self._mechanism, self._keys.server_key, told))
