"""The recipes for clients that are installed here, as their users run them; the others are run by make recipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RECIPES = Path(__file__).parent.parent / "examples" / "recipes"
HERE = ("test_aiokafka.py", "test_confluent_kafka.py", "test_kafka_python.py")
LIMIT_S = 280


def test_the_recipes(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(tmp_path / "pytest.ini"), "-p", "no:cacheprovider"]
    files = [str(RECIPES / name) for name in HERE]
    done = subprocess.run([*command, *files], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0 and "13 passed" in done.stdout, done.stdout + done.stderr


def test_every_recipe_says_how_to_run_it():
    for path in RECIPES.glob("test_*.py"):
        assert f"`pytest {path.name}`" in path.read_text().split('"""')[1], path.name
