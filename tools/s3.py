"""S3 on loopback, by moto: `python s3.py PORT DELAY_MS`; every answer takes that longer."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def main(port: int, delay_ms: float) -> None:
    application = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()  # or two that create one object may both succeed, now and then

    def slow(environ: Any, start_response: Any) -> Any:
        time.sleep(delay_ms / 1000)
        with one_at_a_time:
            return list(application(environ, start_response))

    run_simple("127.0.0.1", port, slow, threaded=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
