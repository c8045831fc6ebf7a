"""docs/behaviours.toml names what exists, and leaves nothing without code and a test or a reason."""

from pathlib import Path

import pytest

import behaviours
from behaviours import Behaviour, Behaviours, Reference, Subject


def test_every_file_symbol_and_test_exists_and_every_behaviour_has_them_or_a_reason() -> None:
    assert behaviours.read().problems() == []


def test_every_anchor_of_the_page_leads_somewhere() -> None:
    page = behaviours.page()
    headings = {behaviours.anchor(line[3:]) for line in page.splitlines() if line.startswith("## ")}
    targets = {part.split(")", 1)[0] for part in page.split("](#")[1:]}
    assert targets <= headings | {one.id for one in behaviours.read()}


def row(**fields: object) -> Behaviours:
    made = Behaviour.parse({"id": "a.b", "says": "It does.", **fields})
    return Behaviours((Subject("s", "", (made,)),), ())


GOOD = {"code": ["coordinator/timers.py:TimerQueue.set"], "tests": ["scenarios/leave.txt"]}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "needs code and a test, or a reason"),
        ({"code": GOOD["code"]}, "needs code and a test, or a reason"),
        (GOOD | {"code": ["coordinator/nowhere.py"]}, "there is no src/kohort/coordinator/nowhere.py"),
        (GOOD | {"code": ["coordinator/timers.py:TimerQueue.sett"]}, "has no TimerQueue.sett"),
        (GOOD | {"tests": ["test_behaviours.py:test_nothing"]}, "has no test_nothing"),
        (GOOD | {"tests": ["test_behaviours.py:row"]}, "is no test"),
        (GOOD | {"tests": ["scenarios/leave.txt:test_it"]}, "has no names in it"),
        (GOOD | {"id": "Join"}, "an id is words"),
        (GOOD | {"says": "it does"}, "is no sentence"),
    ],
)
def test_what_is_wrong_is_found(fields: dict[str, object], problem: str) -> None:
    (found,) = row(**fields).problems()
    assert problem in found


def test_what_is_right_is_not_complained_about() -> None:
    assert row(**GOOD).problems() == []
    assert row(missing="Not yet.").problems() == []
    assert Behaviours(row(**GOOD).subjects * 2, ()).problems() == ["a.b: there are two of that id"]


def test_names_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "X: int = 1\nY, Z = 2, 3\nclass A:\n    f = 1\n    async def g(self): ...\ndef h():\n    inner = 1\n"
    )
    assert behaviours.names_in(file) == {"X", "Y", "Z", "A", "A.f", "A.g", "h"}


def test_a_reference_is_a_file_with_names() -> None:
    text = Reference.parse(behaviours.CODE, "coordinator/timers.py:Deadline,TimerQueue.set").markdown()
    assert text == "`coordinator/timers.py` `Deadline` `TimerQueue.set`"
