"""Java's stores of keys and certificates, as a TLS client takes them."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from kohort.client.config import Config
from kohort.client.errors import ConfigError
from kohort.client.security import key_store, ssl_context, trust_store
from kohort.key_stores.stores import read_store

PEM = serialization.Encoding.PEM


class Identity:
    def __init__(self, name: str, issuer: Identity | None = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.certificate.subject if issuer else subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(issuer is None, None), True)
            .sign(issuer.key if issuer else self.key, hashes.SHA256())
        )

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(PEM)

    def key_pem(self, password: bytes | None = None) -> bytes:
        how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, how)


@pytest.fixture(scope="module")
def authority() -> Identity:
    return Identity("an authority")


@pytest.fixture(scope="module")
def client(authority: Identity) -> Identity:
    return Identity("a client", authority)


def config(**settings: str) -> Config:
    return Config({"bootstrap.servers": "h:1", "security.protocol": "SSL", **settings})


def trusted_by(context: ssl.SSLContext | None) -> list[object]:
    assert context is not None
    return [found["subject"][0][0][1] for found in context.get_ca_certs()]


@pytest.mark.parametrize("form", ["PEM", "PKCS12"])
def test_stores_of_either_form(tmp_path: Path, authority: Identity, client: Identity, form: str) -> None:
    trust, own = tmp_path / "trust", tmp_path / "own"
    if form == "PEM":
        trust.write_bytes(authority.certificate_pem)
        own.write_bytes(client.key_pem() + client.certificate_pem)
    else:
        sealed = serialization.BestAvailableEncryption(b"secret")
        certificate = pkcs12.PKCS12Certificate(authority.certificate, b"ca")
        trust.write_bytes(pkcs12.serialize_java_truststore([certificate], sealed))
        own.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"me", client.key, client.certificate, [authority.certificate], sealed
            )
        )
    given = config(
        **{
            "ssl.truststore.location": str(trust), "ssl.truststore.password": "secret", "ssl.truststore.type": form,
            "ssl.keystore.location": str(own), "ssl.keystore.password": "secret",
        }
    )  # fmt: skip
    assert trusted_by(ssl_context(given)) == ["an authority"]
    stored = key_store(given)
    assert (
        stored is not None and stored.certificates.startswith(client.certificate_pem) and b"PRIVATE KEY" in stored.key
    )


def test_pem_in_the_settings_themselves_even_in_one_line(authority: Identity, client: Identity) -> None:
    given = config(
        **{
            "ssl.truststore.certificates": authority.certificate_pem.decode().replace("\n", " "),
            "ssl.keystore.certificate.chain": client.certificate_pem.decode(),
            "ssl.keystore.key": client.key_pem(b"pass").decode().replace("\n", " "),
            "ssl.key.password": "pass",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    context = ssl_context(given)
    assert trusted_by(context) == ["an authority"] and context is not None and not context.check_hostname
    assert trust_store(given) is not None


def test_what_cannot_be_used_says_what_to_do(tmp_path: Path, authority: Identity) -> None:
    with pytest.raises(ConfigError, match="keytool -importkeystore"):
        read_store(b"\xfe\xed\xfe\xed\0\0\0\2", "secret", "old.jks")
    with pytest.raises(ConfigError, match="cannot be opened as PEM or PKCS#12"):
        read_store(b"something else", None, "a store")
    with pytest.raises(ConfigError, match="cannot be used"):
        ssl_context(config(**{"ssl.truststore.location": str(tmp_path / "nowhere")}))
