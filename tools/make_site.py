"""`make docs`: lays the pages out for mkdocs (README first, examples beside them), and builds the site.

The pages stay readable in the repository: what leads out of docs/ there leads to copies here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS, SOURCE = ROOT / "docs", ROOT / "build" / "site-source"
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "LICENSE")
OUTSIDE = re.compile(r"\]\(\.\./(?=examples/|[A-Z]+(?:\.md)?[)#])")
OF_README = re.compile(r"\]\(docs/")


def lay_out() -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(DOCS, SOURCE)
    shutil.copytree(ROOT / "examples", SOURCE / "examples", ignore=shutil.ignore_patterns("__pycache__", "*.ini"))
    for name in BESIDE:
        shutil.copy(ROOT / name, SOURCE)
    for page in SOURCE.glob("*.md"):
        page.write_text(OUTSIDE.sub("](", page.read_text(encoding="utf-8")), encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (SOURCE / "README.md").unlink()
    index = OF_README.sub("](", readme).replace("](README.md)", "](tutorial.md)")
    (SOURCE / "index.md").write_text(index, encoding="utf-8")
    for page in SOURCE.glob("*.md"):
        page.write_text(page.read_text(encoding="utf-8").replace("](docs/", "]("), encoding="utf-8")


def main() -> int:
    lay_out()
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    return subprocess.run(command, cwd=ROOT, env=quiet).returncode


if __name__ == "__main__":
    sys.exit(main())
