"""A bearer token that Kafka's unsecured validator takes: a JWT that nobody has signed."""

from __future__ import annotations

import base64
import json
import time


def token() -> tuple[str, float]:
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "alice", "iat": now, "exp": now + 600})
    text = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{text}.", now + 600
