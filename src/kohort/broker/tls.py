"""TLS of the listeners, from PEM files or stores of Java, also new ones while the broker runs. Who a certificate is
(mTLS).

New connections get what `reload` has read; those that are there keep what they have.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kohort.broker.config import BrokerConfig, ConfigError

if TYPE_CHECKING:
    from kohort.broker.listener_config import ListenerConfig
    from kohort.key_stores.stores import Store

_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SHORT = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_SPECIAL = re.compile(r'([,+"\\<>;=])')


class Certificates:
    """The context of a TLS listener."""

    def __init__(self, config: BrokerConfig | ListenerConfig) -> None:
        self._config = config
        if not config["ssl.keystore.location"]:
            raise ConfigError(
                "A listener with TLS needs a certificate: set ssl.keystore.location to a PEM file with the private key "
                "and the certificates, or to a PKCS12 or JKS store"
            )
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.reload()

    def reload(self) -> None:
        """Read the files again; ConfigError, with everything as it was, where they cannot be used."""
        from kohort.key_stores.loading import load_key  # late: a listener without TLS needs none of it

        config = self._config
        trusted = config["ssl.truststore.location"]
        try:
            own = self._store(config["ssl.keystore.location"], config["ssl.keystore.password"])
            authorities = self._store(trusted, config["ssl.truststore.password"]) if trusted else None
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
                load_key(context, own, config["ssl.key.password"])
                if authorities is not None:
                    context.load_verify_locations(cadata=authorities.certificates.decode())
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"the files of ssl.keystore.location and ssl.truststore.location cannot be used: "
                f"{getattr(error, 'strerror', None) or error}"
            ) from None
        mode = _AUTH[config["ssl.client.auth"]]
        if mode is not ssl.CERT_NONE and not trusted:
            raise ConfigError("ssl.client.auth needs ssl.truststore.location: the authorities that sign clients")
        self.context.verify_mode = mode

    def _store(self, location: str, password: str | None) -> Store:
        from pathlib import Path

        from kohort.key_stores.stores import read_store

        return read_store(Path(location).read_bytes(), password, location, self._config["ssl.key.password"])


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """As Java writes it (RFC 2253): the most specific part first."""
    rdns = reversed(certificate.get("subject", ()))
    return ",".join("+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in rdn) for rdn in rdns)


def _escaped(value: str) -> str:
    return _SPECIAL.sub(r"\\\1", value)


class PrincipalMapping:
    """ssl.principal.mapping.rules: which user a distinguished name is (KIP-371)."""

    def __init__(self, rules: str) -> None:
        self._rules: list[tuple[re.Pattern[str], str, str] | None] = []
        for text in _split(rules):
            if text == "DEFAULT":
                self._rules.append(None)
                continue
            match = _RULE.fullmatch(text)
            if match is None:
                raise ConfigError(
                    f"Invalid rule {text} in ssl.principal.mapping.rules: write RULE:pattern/replacement/ or DEFAULT"
                )
            replacement = re.sub(r"\$(\d)", r"\\\1", match[2])
            self._rules.append((re.compile(match[1]), replacement, match[3]))

    def user(self, name: str) -> str:
        for rule in self._rules:
            if rule is None:
                return name
            pattern, replacement, case = rule
            if match := pattern.fullmatch(name):
                user = match.expand(replacement)
                return user.lower() if case == "L" else user.upper() if case == "U" else user
        raise ValueError(f"no rule of ssl.principal.mapping.rules applies to {name}")


def _split(rules: str) -> list[str]:
    """At the commas between rules, not those within one."""
    return [part.strip() for part in re.split(r",\s*(?=RULE:|DEFAULT\b)", rules) if part.strip()]
