"""SASL as generators: a message out, the answer in. PLAIN, SCRAM (RFC 5802), OAUTHBEARER (RFC 7628). No I/O."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator
from typing import NamedTuple

from kohort.client.errors import AuthenticationError

OAUTHBEARER = "OAUTHBEARER"


class Credentials(NamedTuple):
    mechanism: str
    username: str
    password: str


def exchange(given: Credentials, nonce: str) -> Generator[bytes, bytes, None]:
    """Yields what to send, is sent what came back, ends when the broker has accepted and shown who it is."""
    if given.mechanism == "PLAIN":
        yield f"\0{given.username}\0{given.password}".encode()
        return
    if given.mechanism == OAUTHBEARER:
        refusal = yield f"n,,\x01auth=Bearer {given.password}\x01\x01".encode()
        if refusal:
            yield b"\x01"
            raise AuthenticationError(f"the broker refused the bearer token: {refusal.decode(errors='replace')}")
        return
    scram = Scram(given.mechanism, given.username, given.password, nonce)
    server_first = yield scram.first()
    server_final = yield scram.final(server_first)
    scram.check(server_final)


class Scram:
    """The client's side of one SCRAM exchange."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}"
        self._signature = b""

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self._hash).digest()

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        if not fields["r"].startswith(self._nonce):
            raise AuthenticationError("the broker answered another SCRAM exchange")
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._hash().name, self._password, salt, rounds)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        signature = self._hmac(self._hash(client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        fields = dict(part.split("=", 1) for part in server_final.decode().split(","))
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._signature):
            raise AuthenticationError("the broker does not know the password it claims to know")
