"""A certificate authority for a test, and what it signs: `kohort.Broker(tls=True)`. Never for anything in earnest."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from kohort.broker.config import ConfigError

_DAY = datetime.timedelta(days=1)


class TestAuthority:
    """PEM files in `directory`: ca.pem for clients, broker.pem with key and certificate, and one for each client."""

    __test__ = False

    def __init__(self, directory: Path, name: str = "kohort test authority") -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError:
            raise ConfigError("tls=True makes certificates, which needs: pip install 'kohort[security]'") from None
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        certificate = self._builder(self._name, self._key.public_key(), 30, authority=True)
        self._certificate = certificate.sign(self._key, _hash())
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_bytes(_pem(self._certificate))

    def sign(self, name: str, *hosts: str, days: int = 30) -> Path:
        """A key and a certificate in one file; a negative number of days has expired."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(name), key.public_key(), days, authority=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        certificate = builder.sign(self._key, _hash())
        encoded = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.directory / f"{name}.pem"
        path.touch(0o600)
        path.write_bytes(encoded + _pem(certificate))
        return path

    def _builder(self, name: Any, key: Any, days: int, *, authority: bool) -> Any:
        from cryptography import x509

        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 60 * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )


def _name(common_name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _hash() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    encoded: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return encoded


def _host(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
