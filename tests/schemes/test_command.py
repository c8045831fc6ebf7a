"""`kohort schemes` as a command: tables, JSON, what it refuses."""

import json

from kohort.cli.run import run
from kohort.schemes.compare import CHANGES, SCHEMES


def test_tables_and_a_line_a_scheme(capsys):
    assert run(["schemes", "--members", "3,4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for scheme in SCHEMES:
        rows = [line for line in lines if line.startswith(f"{scheme}  ")]
        assert [row.removeprefix(scheme).split()[0] for row in rows] == ["3", "4", "3", "4"]
        assert sum(line.startswith(f"{scheme}: ") for line in lines) == 1


def test_a_row_for_every_change(capsys):
    assert run(["schemes", "--members", "3", "--by-change"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(SCHEMES) * len(CHANGES)


def test_json_has_everything(capsys):
    assert run(["schemes", "--members", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["scheme"], row["change"]) for row in found] == [(s, change) for s in SCHEMES for change in CHANGES]
    for row in found:
        assert row["messages"] == row["reads"] + row["writes"] + row["notifications"] + row["requests"] > 0


def test_wrong_sizes_are_refused_in_one_sentence(capsys):
    for text in ("", "x", "1", "3,,4"):
        assert run(["schemes", "--members", text]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_groups_on_several_coordinators(capsys):
    assert run(["schemes", "--groups", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[2:6]] == [
        "server coordinator",
        "server coordinator, divided",
        "today",
        "next",
    ]
