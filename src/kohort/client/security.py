"""TLS as the ssl.* settings describe it: Python's names of PEM files, or Java's of stores."""

from __future__ import annotations

import ssl
from pathlib import Path

from kohort.client.config import Config
from kohort.client.errors import ConfigError
from kohort.key_stores.loading import load_key
from kohort.key_stores.stores import Store, read_store


def ssl_context(config: Config) -> ssl.SSLContext | None:
    """None where security.protocol does not encrypt."""
    if not config["security.protocol"].endswith("SSL"):
        return None
    given: ssl.SSLContext | None = config["ssl.context"]
    if given is not None:
        return given
    try:
        trusted = trust_store(config)
        context = ssl.create_default_context(
            cafile=config["ssl.cafile"], cadata=trusted.certificates.decode() if trusted else None
        )
        if config["ssl.certfile"]:
            context.load_cert_chain(config["ssl.certfile"], config["ssl.keyfile"], config["ssl.key.password"])
        elif (own := key_store(config)) is not None:
            load_key(context, own, config["ssl.key.password"])
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the files or stores that ssl.* names cannot be used: {error}") from None
    context.check_hostname = config["ssl.check.hostname"] and config["ssl.endpoint.identification.algorithm"] != ""
    return context


def trust_store(config: Config) -> Store | None:
    """The authorities that Java's settings name."""
    if config["ssl.truststore.certificates"]:
        return Store(_inline(config["ssl.truststore.certificates"]))
    return _stored(config, "ssl.truststore")


def key_store(config: Config) -> Store | None:
    """The certificate and the key that Java's settings name."""
    if config["ssl.keystore.certificate.chain"]:
        return Store(_inline(config["ssl.keystore.certificate.chain"]), _inline(config["ssl.keystore.key"] or ""))
    return _stored(config, "ssl.keystore")


def _stored(config: Config, which: str) -> Store | None:
    location: str | None = config[f"{which}.location"]
    if not location:
        return None
    return read_store(Path(location).read_bytes(), config[f"{which}.password"], location, config["ssl.key.password"])


def _inline(text: str) -> bytes:
    """Java allows PEM in one line, with spaces for line breaks."""
    parts = text.replace("\\n", "\n").split("-----")
    return "".join(
        f"-----{part}-----\n" if part.startswith(("BEGIN ", "END ")) else "\n".join(part.split()) + "\n"
        for part in parts
        if part.strip()
    ).encode()
