"""docs/behaviours.toml, read and checked, and the page that is made of it. tools/make_docs.py writes the page.

References are files with names in them, never lines: a page that goes stale with every edit is read by nobody.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "behaviours.toml"
CODE, TESTS = ROOT / "src" / "kohort", ROOT / "tests"
ID = re.compile(r"[a-z]+(-[a-z]+)*(\.[a-z]+(-[a-z]+)*)+")


@dataclass(frozen=True, slots=True)
class Reference:
    """A file below `src/kohort` or `tests`, and what to look at in it."""

    base: Path
    path: str
    names: tuple[str, ...]

    @classmethod
    def parse(cls, base: Path, text: str) -> Reference:
        path, _, names = text.partition(":")
        return cls(base, path, tuple(names.split(",")) if names else ())

    @property
    def file(self) -> Path:
        return self.base / self.path

    def markdown(self) -> str:
        """No link: the page is read in the repository and as a site, which has no sources."""
        return " ".join([f"`{self.path}`", *(f"`{name}`" for name in self.names)])

    def problems(self) -> Iterator[str]:
        if not self.file.is_file():
            yield f"there is no {self.file.relative_to(ROOT)}"
        elif self.names and self.file.suffix != ".py":
            yield f"{self.path} has no names in it"
        elif self.names:
            yield from (f"{self.path} has no {name}" for name in self.names if name not in names_in(self.file))


@dataclass(frozen=True, slots=True)
class Behaviour:
    id: str
    says: str
    code: tuple[Reference, ...]
    tests: tuple[Reference, ...]
    decided: str
    missing: str

    @classmethod
    def parse(cls, row: dict[str, Any]) -> Behaviour:
        unknown = set(row) - {"id", "says", "code", "tests", "decided", "missing"}
        if unknown:
            raise ValueError(f"{row.get('id')}: nobody reads {', '.join(sorted(unknown))}")
        return cls(
            row["id"],
            row["says"],
            tuple(Reference.parse(CODE, text) for text in row.get("code", ())),
            tuple(Reference.parse(TESTS, text) for text in row.get("tests", ())),
            row.get("decided", ""),
            row.get("missing", ""),
        )

    @property
    def absent(self) -> bool:
        return not self.tests

    def problems(self) -> Iterator[str]:
        if not ID.fullmatch(self.id):
            yield "an id is words of small letters with dots between them"
        if not (self.code and self.tests) and not self.missing:
            yield "needs code and a test, or a reason why it is missing"
        for text in (self.says, self.decided, self.missing):
            if text and not text.endswith((".", ".)")):
                yield f"is no sentence: {text}"
        for reference in (*self.code, *self.tests):
            yield from reference.problems()
        for test in self.tests:
            if any(not name.startswith("test_") for name in test.names):
                yield f"{test.path}: {', '.join(test.names)} is no test"

    def markdown(self) -> str:
        text = self.says
        if self.decided:
            text += f" **Decided:** {self.decided}"
        if self.missing:
            text += f" **{'Not here' if self.absent else 'In part'}:** {self.missing}"
        cells = (
            f'<a id="{self.id}"></a>{text}<br>`{self.id}`',
            "<br>".join(one.markdown() for one in self.code),
            "<br>".join(one.markdown() for one in self.tests),
        )
        return f"| {' | '.join(cells)} |"


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    about: str
    behaviours: tuple[Behaviour, ...]

    def markdown(self) -> str:
        lines = [f"## {self.name}", ""]
        if self.about:
            lines += [self.about, ""]
        lines += ["| behaviour | code | shown by |", "|---|---|---|"]
        return "\n".join([*lines, *(one.markdown() for one in self.behaviours)])


@dataclass(frozen=True, slots=True)
class Question:
    """Where descriptions of Kafka contradict each other: the answer here, and the behaviours that show it."""

    asks: str
    answer: str
    see: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Behaviours:
    subjects: tuple[Subject, ...]
    questions: tuple[Question, ...]

    def __iter__(self) -> Iterator[Behaviour]:
        return (one for subject in self.subjects for one in subject.behaviours)

    def problems(self) -> list[str]:
        """What is wrong with the data; empty where all is well."""
        found = [f"{one.id}: {problem}" for one in self for problem in one.problems()]
        ids = [one.id for one in self]
        found += [f"{one}: there are two of that id" for one in sorted({one for one in ids if ids.count(one) > 1})]
        found += [f"{q.asks}: there is no {one}" for q in self.questions for one in q.see if one not in ids]
        return found


def read(path: Path = DATA) -> Behaviours:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    subjects = tuple(
        Subject(s["name"], s.get("about", ""), tuple(map(Behaviour.parse, s["behaviour"]))) for s in data["subject"]
    )
    return Behaviours(subjects, tuple(Question(q["asks"], q["answer"], tuple(q["see"])) for q in data["question"]))


@cache
def names_in(file: Path) -> frozenset[str]:
    """Functions, classes, methods as `Class.method`, and what is assigned at the top or in the body of a class."""
    return frozenset(_names(ast.parse(file.read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from _names(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from (prefix + one.id for one in ast.walk(target) if isinstance(one, ast.Name))


# ---- the page


def page() -> str:
    behaviours = read()
    absent = [one for one in behaviours if one.absent]
    in_part = [one for one in behaviours if one.missing and not one.absent]
    parts = [
        INTRODUCTION.format(count=len(list(behaviours)), absent=len(absent), in_part=len(in_part)),
        "\n".join(f"- [{subject.name}](#{anchor(subject.name)})" for subject in behaviours.subjects),
        _questions(behaviours),
        _not_here(absent, in_part),
        *(subject.markdown() for subject in behaviours.subjects),
        _by_file(behaviours),
    ]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """# Behaviours

What a consumer group does, one row a behaviour: the code where it lives and the tests that would fail without it. Look
for a word of it on this page, or for the [file](#by-file) you are in. Its id stays, whatever the code is called.

{count} behaviours; {absent} of them are [not here](#not-here), {in_part} in part. *Decided* says where Kafka has
changed its mind over the years, or this project does otherwise; every difference from Kafka 4.3 is in
[Differences](differences.md). Code is below `src/kohort/`, tests are below `tests/`; a scenario (`.txt`) is a trace of
requests and answers that reads from top to bottom.

Made from [behaviours.toml](behaviours.toml), which is the file to edit; `tests/test_behaviours.py` checks that
everything named here exists."""


def anchor(heading: str) -> str:
    """As GitHub makes them."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _links(ids: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"[`{one}`](#{one})" for one in ids)


def _questions(behaviours: Behaviours) -> str:
    lines = [
        "## Where descriptions differ",
        "",
        "Kafka's group protocol has been described often, for versions of ten years; they do not all say the same.",
        "",
        "| question | here | see |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {q.asks} | {q.answer} | {_links(q.see)} |" for q in behaviours.questions)])


def _not_here(absent: list[Behaviour], in_part: list[Behaviour]) -> str:
    lines = ["## Not here", "", "| | behaviour | why |", "|---|---|---|"]
    lines += [f"| no | {one.says} | {one.missing} |" for one in absent]
    lines += [f"| in part | {_links([one.id])} | {one.missing} |" for one in in_part]
    return "\n".join(lines)


def _by_file(behaviours: Behaviours) -> str:
    files: dict[str, list[str]] = {}
    for one in behaviours:
        for reference in one.code:
            found = files.setdefault(reference.path, [])
            if one.id not in found:
                found.append(one.id)
    rows = (f"| `{path}` | {_links(ids)} |" for path, ids in sorted(files.items()))
    return "\n".join(["## By file", "", "| file | behaviours |", "|---|---|", *rows])
