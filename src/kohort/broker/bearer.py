"""Bearer tokens of OAUTHBEARER (RFC 7628): JSON web tokens, checked against the keys of a JWKS file or of
an https address. No clock.

The kind of the key decides which signatures count, never the token; a token without a signature, an end or a user is
refused. The keys are read at the start and on SIGHUP, those of an address (`jwks.py`) also on another thread when they
are old, or when a token names one that is not there. Needs the package `cryptography` (kohort[security]).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.broker.jwks import read_keys
from kohort.config_key import ConfigError

if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig

JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
MISSED_AGAIN_MS = 10_000
"""So long a token that names a key that is not there causes no further question."""
Check = Callable[[bytes, bytes], bool]
"""Whether a signature is that of these bytes."""


class InvalidToken(Exception):
    """For the log, never for the client."""


class Bearer(NamedTuple):
    user: str
    expires_ms: int


class Tokens:
    def __init__(self, config: BrokerConfig) -> None:
        self._url: str = config[JWKS_URL]
        self._audiences = set(config["sasl.oauthbearer.expected.audience"] or ())
        self._issuer: str | None = config["sasl.oauthbearer.expected.issuer"]
        self._user_claim: str = config["sasl.oauthbearer.sub.claim.name"]
        self._skew_ms = config["sasl.oauthbearer.clock.skew.seconds"] * 1000
        self._refresh_ms: int = config["sasl.oauthbearer.jwks.endpoint.refresh.ms"]
        self._keys: list[tuple[str | None, dict[str, Check]]] = []
        self._read_ms: int | None = None
        self._misses = False
        self.is_refreshing = False
        self.reload()

    def reload(self) -> None:
        """ConfigError, with the keys as they were, where the file cannot be read."""
        if not (self._url or "").startswith(("file:///", "https://")):
            raise ConfigError(
                f"{JWKS_URL} has to be the place of keys, file:///path or https://address: OAUTHBEARER needs it"
            )
        try:
            found = json.loads(read_keys(self._url))["keys"]
            keys = [(key.get("kid"), _checks(key)) for key in found if key.get("use", "sig") == "sig"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{JWKS_URL}: {self._url} holds no keys that can be read: {error}") from None
        if not keys:
            raise ConfigError(f"{JWKS_URL}: {self._url} holds no keys")
        self._keys = keys

    def is_stale(self, now_ms: int) -> bool:
        """Whether the keys of an address should be asked for again. Whoever asks then does so."""
        if not self._url.startswith("https://") or self.is_refreshing:
            return False
        if self._read_ms is None:
            self._read_ms = now_ms
        age_ms = now_ms - self._read_ms
        if age_ms < self._refresh_ms and not (self._misses and age_ms >= MISSED_AGAIN_MS):
            return False
        self._read_ms, self._misses, self.is_refreshing = now_ms, False, True
        return True

    def check(self, token: str, now_ms: int) -> Bearer:
        """Who a token stands for, and until when; InvalidToken where it stands for nobody."""
        try:
            head, body, signature = token.split(".")
            header, claims = json.loads(_decoded(head)), json.loads(_decoded(body))
            self._check_signature(header, f"{head}.{body}".encode(), _decoded(signature))
            return self._check_claims(claims, now_ms)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
            raise InvalidToken(f"it cannot be read: {error}") from None

    def _check_signature(self, header: dict[str, Any], signed: bytes, signature: bytes) -> None:
        wanted, algorithm = header.get("kid"), header["alg"]
        self._misses = self._misses or (wanted is not None and all(kid != wanted for kid, _ in self._keys))
        for kid, checks in self._keys:
            if wanted is not None and kid is not None and wanted != kid:
                continue
            check = checks.get(algorithm)
            if check is not None and check(signed, signature):
                return
        raise InvalidToken("no key made its signature")

    def _check_claims(self, claims: dict[str, Any], now_ms: int) -> Bearer:
        user, expires_ms = claims[self._user_claim], int(claims["exp"] * 1000)
        if not isinstance(user, str) or not user.strip():
            raise InvalidToken(f"it has no {self._user_claim}")
        if now_ms >= expires_ms + self._skew_ms:
            raise InvalidToken("it has expired")
        if int(claims.get("nbf", 0) * 1000) > now_ms + self._skew_ms:
            raise InvalidToken("it is not valid yet")
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise InvalidToken("another issuer made it")
        given = claims.get("aud", [])
        if self._audiences and not self._audiences & set([given] if isinstance(given, str) else given):
            raise InvalidToken("it is for another audience")
        return Bearer(user, expires_ms)


def _decoded(text: str) -> bytes:
    if not text.isascii():
        raise ValueError("not base64")
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _number(text: str) -> int:
    return int.from_bytes(_decoded(text), "big")


def _checks(key: dict[str, Any]) -> dict[str, Check]:
    """By the name of the algorithm, what one key can check."""
    kind = key["kty"]
    if kind == "oct":
        secret = _decoded(key["k"])
        if len(secret) < 32:
            raise ValueError("a secret key has at least 32 bytes")
        return {"HS256": lambda signed, given: hmac.compare_digest(hmac.digest(secret, signed, hashlib.sha256), given)}
    try:
        from cryptography.hazmat.primitives import hashes
    except ImportError:
        raise ConfigError("OAUTHBEARER needs cryptography: pip install 'kohort[security]'") from None
    sizes = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
    if kind == "RSA":
        return {f"RS{bits}": _rsa(key, hashed) for bits, hashed in sizes.items()}
    if kind == "EC" and key["crv"] == "P-256":
        return {"ES256": _elliptic(key, sizes["256"])}
    return {}


def _rsa(key: dict[str, Any], hashed: Any) -> Check:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    public = RSAPublicNumbers(_number(key["e"]), _number(key["n"])).public_key()

    def check(signed: bytes, given: bytes) -> bool:
        try:
            public.verify(given, signed, padding.PKCS1v15(), hashed)
        except InvalidSignature:
            return False
        return True

    return check


def _elliptic(key: dict[str, Any], hashed: Any) -> Check:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    public = ec.EllipticCurvePublicNumbers(_number(key["x"]), _number(key["y"]), ec.SECP256R1()).public_key()

    def check(signed: bytes, given: bytes) -> bool:
        if len(given) != 64:
            return False
        signature = encode_dss_signature(int.from_bytes(given[:32], "big"), int.from_bytes(given[32:], "big"))
        try:
            public.verify(signature, signed, ec.ECDSA(hashed))
        except InvalidSignature:
            return False
        return True

    return check
