"""Every scenario file leads to what it says. See scenarios.py for the language."""

import os
from pathlib import Path

import pytest

from coordinator import scenarios

FILES = sorted((Path(__file__).parent.parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text()
    played = scenarios.run(text)
    if os.environ.get("KOHORT_REWRITE"):
        path.write_text(played)
        return
    assert played == text


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 20
