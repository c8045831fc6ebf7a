"""Small programs that start another one as Spark cannot be told to start it. Written once, for this user alone."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path


def write(name: str, path: str, text: str, directory: Path | None = None) -> Path:
    """A folder of this user with an executable `path` in it that holds `text`: another one for another text, since
    environments side by side start different programs."""
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    home = (directory or Path(tempfile.gettempdir())) / f"kohort-{name}-{os.getuid()}-{mark}"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_ours_alone(home):
        home = Path(tempfile.mkdtemp(prefix=f"kohort-{name}-"))
    launcher = home / path
    if launcher.exists() and launcher.read_text() == text:
        return home
    launcher.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = launcher.with_name(f"{launcher.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(0o700)
    fresh.replace(launcher)
    return home


def _is_ours_alone(folder: Path) -> bool:
    """Everyone may create folders in the one for temporary files."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
