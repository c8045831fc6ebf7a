"""TLS as the ssl.* settings describe it."""

from __future__ import annotations

import ssl

from kohort.client.config import Config
from kohort.client.errors import ConfigError


def ssl_context(config: Config) -> ssl.SSLContext | None:
    """None where security.protocol does not encrypt."""
    if not config.security_protocol.endswith("SSL"):
        return None
    given: ssl.SSLContext | None = config["ssl.context"]
    if given is not None:
        return given
    try:
        context = ssl.create_default_context(cafile=config.ssl_cafile)
        if config.ssl_certfile:
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, config.ssl_key_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ssl.cafile, ssl.certfile or ssl.keyfile cannot be used: {error}") from None
    context.check_hostname = config.ssl_check_hostname
    return context
