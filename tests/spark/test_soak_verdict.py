"""The exactly-once soak tells a query that does not recover from a machine that is too slow to start Spark's Python."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

import soak_exactly_once as soak

REAL = "Refusal: batch 0 is not published " + "x" * 5000 + " and this is why"


class App:
    """Answers what it was given, then always the last of it."""

    def __init__(self, *failures: str | None) -> None:
        self.failures = list(failures)
        self.begun = 0

    def answer(self) -> dict[str, Any]:
        return {"failed": self.failures.pop(0) if len(self.failures) > 1 else self.failures[0]}

    def begin(self, doom: str) -> None:
        self.begun += 1


def finish(home: Path, app: App, monkeypatch: pytest.MonkeyPatch) -> tuple[soak.Soak, bool]:
    made = soak.Soak(argparse.Namespace(seed=1, kafka=False), home)
    made.app = app  # type: ignore[assignment]
    monkeypatch.setattr(made, "_living", lambda: app)
    return made, made._finish("after:Look")


def test_starved_starts_do_not_count_and_real_failures_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(*[soak.STARVED] * 10, REAL, None)
    made, is_good = finish(tmp_path, app, monkeypatch)
    assert is_good
    assert made.starved == 10
    assert REAL in (tmp_path / "failures.log").read_text()
    assert made._verdict() == "every row once"


def test_a_query_that_does_not_recover_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(soak.STARVED, REAL)
    made, is_good = finish(tmp_path, app, monkeypatch)
    assert not is_good
    assert app.begun == soak.ATTEMPTS + 1
    assert made._verdict() == "1 promises broken"


def test_a_machine_that_is_always_too_slow_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, is_good = finish(tmp_path, App(soak.STARVED), monkeypatch)
    assert not is_good
    assert not made.broken
    assert made._verdict().startswith("NOTHING SHOWN")
