"""Security settings as Java's clients have them, in the names of kohort's client. Pure, no files.

People who move a job over have `kafka.sasl.jaas.config` and stores of keys; both are understood as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

JAAS = "sasl.jaas.config"
MSK_PROVIDER = "kohort.client.tokens:aws_msk_iam"
_MODULE = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*$", re.DOTALL | re.IGNORECASE
)
_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+))""")
_NOT_NEEDED = (
    "sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "ssl.protocol", "ssl.enabled.protocols",
    "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation",
    "security.providers",
)  # fmt: skip
"""Names of Java classes and algorithms: what they are for is done here without them."""


UNDERSTOOD = frozenset({JAAS, *_NOT_NEEDED})
"""Names that kohort's client does not have."""


def from_java(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings without Java's own; ValueError in plain words where one cannot be understood."""
    kept = {name: value for name, value in settings.items() if name != JAAS and name not in _NOT_NEEDED}
    if JAAS in settings:
        found = parse_jaas(settings[JAAS], settings.get("sasl.mechanism"))
        kept = {**found, **kept, "sasl.mechanism": found["sasl.mechanism"]}
    elif settings.get("sasl.mechanism", "").upper() == "GSSAPI":
        raise ValueError(_NO_KERBEROS)
    return kept


_NO_KERBEROS = "Kerberos (GSSAPI) is not spoken here: use SCRAM, PLAIN, OAUTHBEARER or TLS certificates"


def parse_jaas(text: str, mechanism: str | None = None) -> dict[str, str]:
    """kohort's settings of a JAAS line."""
    match = _MODULE.match(text)
    if match is None:
        raise ValueError(f'{JAAS} must read: <login module> required username="…" password="…";')
    module = match.group(1).rpartition(".")[2]
    options = {name: _plain(*values) for name, *values in _OPTION.findall(match.group(2))}
    if module == "PlainLoginModule":
        return {**_user(options), "sasl.mechanism": "PLAIN"}
    if module == "ScramLoginModule":
        if mechanism is None or not mechanism.upper().startswith("SCRAM-"):
            raise ValueError(f"{JAAS} is SCRAM's: set kafka.sasl.mechanism to SCRAM-SHA-256 or SCRAM-SHA-512")
        return {**_user(options), "sasl.mechanism": mechanism.upper()}
    if module == "OAuthBearerLoginModule":
        return {**_client(options), "sasl.mechanism": "OAUTHBEARER"}
    if module == "IAMLoginModule":
        return {"sasl.oauthbearer.token.provider": MSK_PROVIDER, "sasl.mechanism": "OAUTHBEARER"}
    if module == "Krb5LoginModule":
        raise ValueError(_NO_KERBEROS)
    raise ValueError(f"{JAAS} names {module}, and what is known are those for PLAIN, SCRAM, OAUTHBEARER and MSK IAM")


def _plain(quoted: str, single: str, bare: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted) if quoted else single or bare


def _user(options: Mapping[str, str]) -> dict[str, str]:
    if "username" not in options or "password" not in options:
        raise ValueError(f"{JAAS} has no username or no password")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _client(options: Mapping[str, str]) -> dict[str, str]:
    names = {
        "clientId": "sasl.oauthbearer.client.credentials.client.id",
        "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
        "scope": "sasl.oauthbearer.scope",
    }
    return {name: options[given] for given, name in names.items() if given in options}
