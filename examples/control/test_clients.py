"""The clients of the control port in other languages, each tried where its language is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMANDS = {
    "node": ["node", "example.mjs"],
    "java": ["java", "KohortControl.java"],
    "go": ["go", "run", "kohort_control.go"],
}


@pytest.mark.parametrize("language", COMMANDS)
def test_the_client_works(language):
    if shutil.which(language) is None:
        pytest.skip(f"{language} is not installed")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        COMMANDS[language], cwd=HERE, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "ok", done.stderr
