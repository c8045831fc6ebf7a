"""A key and its certificates into a TLS context. The one place that writes a key to a file, for a moment."""

from __future__ import annotations

import os
import ssl

from kohort.key_stores.stores import Store


def load_key(context: ssl.SSLContext, store: Store, password: str | None) -> None:
    """Python loads a key from a file alone: one that nobody else can read, and that is gone right after."""
    import tempfile  # late: it takes long to import

    descriptor, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(store.key + store.certificates)
        context.load_cert_chain(name, password=lambda: password or "")
    finally:
        os.unlink(name)
