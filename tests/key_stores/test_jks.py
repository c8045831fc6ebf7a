"""Java's old stores, as keytool of Java 17 wrote them: certificates, a key with a password of its own."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from kohort.client.config import Config
from kohort.client.errors import ConfigError
from kohort.client.security import ssl_context
from kohort.key_stores.stores import read_store

OWN = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAQACbWUAAAGh5x8FCAAAAH8wfTAOBgorBgEEASoCEQEBBQAEa+AnFIX+mfZHzh6KjTJ2zlF6Nfws9u8t"
    "dtaZFnGs2nw5D/ToPmN41ebqRojEQLH9w0TxiF+7pzMpPzA4rtdZBffntPTCHx7lHfO9K55YycUzJd95Niyi7VURdbhjwW0tudT8"
    "uxt5UOnZ8e7/AAAAAQAFWC41MDkAAAFBMIIBPTCB5aADAgECAggnfmREahlIJjAKBggqhkjOPQQDAjATMREwDwYDVQQDEwhhLWNs"
    "aWVudDAgFw0yNjExMTcwMTI4NTFaGA8yMTI2MTAyNDAxMjg1MVowEzERMA8GA1UEAxMIYS1jbGllbnQwWTATBgcqhkjOPQIBBggq"
    "hkjOPQMBBwNCAAS0Xsd22jq4BHrCh5s8y1b1NJ17aMsnhNN09XJrL/aZW8MpUII+4t+3Ixu8ncn4kEaTAnhlRU4GuJ5n9YqcGiA4"
    "oyEwHzAdBgNVHQ4EFgQUXYjU+zOvkk9iFVHgsFjC0JGRHjAwCgYIKoZIzj0EAwIDRwAwRAIgSaAh16d3rknJ84KuOmvZq5stGs1b"
    "iPvz+4ACu38mBoECIAcQLC+XJyamZISr42PM4KtfRcZzpgZ8WbgT94m76nfdtuulERNViN/WGPINe6vB7p73B0s="
)
"""keytool -genkeypair -alias me -keyalg EC -dname CN=a-client -storetype JKS -storepass secret1 -keypass other22"""
TRUST = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAgACY2EAAAGh5x8RnQAFWC41MDkAAAFBMIIBPTCB5aADAgECAggnfmREahlIJjAKBggqhkjOPQQDAjAT"
    "MREwDwYDVQQDEwhhLWNsaWVudDAgFw0yNjExMTcwMTI4NTFaGA8yMTI2MTAyNDAxMjg1MVowEzERMA8GA1UEAxMIYS1jbGllbnQw"
    "WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAS0Xsd22jq4BHrCh5s8y1b1NJ17aMsnhNN09XJrL/aZW8MpUII+4t+3Ixu8ncn4kEaT"
    "AnhlRU4GuJ5n9YqcGiA4oyEwHzAdBgNVHQ4EFgQUXYjU+zOvkk9iFVHgsFjC0JGRHjAwCgYIKoZIzj0EAwIDRwAwRAIgSaAh16d3"
    "rknJ84KuOmvZq5stGs1biPvz+4ACu38mBoECIAcQLC+XJyamZISr42PM4KtfRcZzpgZ8WbgT94m76nfd6ve+/JlJkqb2G2DFodES"
    "Nu0/eAc="
)
"""keytool -importcert -alias ca -storetype JKS -storepass secret1"""


def test_a_key_and_its_certificate() -> None:
    store = read_store(OWN, "secret1", "own.jks", "other22")
    certificate = x509.load_pem_x509_certificate(store.certificates)
    assert certificate.subject.rfc4514_string() == "CN=a-client"
    key = load_pem_private_key(store.key, None)
    assert key.public_key() == certificate.public_key()


def test_trusted_certificates_with_the_password_or_without() -> None:
    for password in ("secret1", None):
        store = read_store(TRUST, password, "trust.jks")
        assert x509.load_pem_x509_certificate(store.certificates).subject.rfc4514_string() == "CN=a-client"
        assert store.key == b""


def test_a_tls_context_takes_both(tmp_path: Path) -> None:
    (tmp_path / "own.jks").write_bytes(OWN)
    (tmp_path / "trust.jks").write_bytes(TRUST)
    context = ssl_context(
        Config({
            "bootstrap.servers": "h:1", "security.protocol": "SSL", "ssl.key.password": "other22",
            "ssl.truststore.location": str(tmp_path / "trust.jks"), "ssl.truststore.password": "secret1",
            "ssl.keystore.location": str(tmp_path / "own.jks"), "ssl.keystore.password": "secret1",
        })
    )  # fmt: skip
    assert context is not None and context.cert_store_stats()["x509"] == 1


def _with(content: bytes, at: int, byte: int) -> bytes:
    return content[:at] + bytes([byte]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("content", "password", "key_password", "why"),
    [
        (OWN, "wrong", "other22", "the password is wrong"),
        (OWN, "secret1", "wrong", "password of the key me is wrong"),
        (OWN, None, None, "the key me needs a password"),
        (_with(OWN, 60, 1), "secret1", "other22", "the password is wrong, or the store was changed"),
        (_with(TRUST, 7, 9), None, None, "its version is 9"),
        (TRUST[:100], None, None, "ends too early"),
        (OWN[:8], None, None, "ends too early"),
        (b"\xce\xce\xce\xce" + OWN[4:], None, "other22", "a key as only Java reads it"),
    ],
)
def test_what_cannot_be_read_says_why(content: bytes, password: str, key_password: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        read_store(content, password, "old.jks", key_password)
    assert "keytool -importkeystore -srckeystore old.jks" in str(raised.value)


def test_no_bytes_do_worse_than_that() -> None:
    for at in range(4, len(OWN)):
        for byte in (0x00, 0x7F, 0xFF):
            try:
                read_store(_with(OWN, at, byte), None, "old.jks", "other22")
            except ConfigError as error:
                assert "old.jks" in str(error)
