"""A real Chromium for tests of the page; run as a program, it says whether there is one."""

from __future__ import annotations

import os
import shutil
import sys

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """KOHORT_CHROMIUM, or the first that is on the path."""
    given = os.environ.get("KOHORT_CHROMIUM")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


if __name__ == "__main__":
    sys.exit(chromium() is None)
