"""The documentation is up to date with the code, its links lead somewhere, and the dashboard queries what there is."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kohort
import make_docs
from kohort.broker.metrics import EXPORTED
from kohort.coordinator.classic.states import TRANSITIONS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
SUFFIXES = ("_bucket", "_sum", "_count", "")


@pytest.mark.parametrize("path", sorted(make_docs.made()), ids=lambda path: path.name)
def test_what_is_made_from_the_code_is_up_to_date(path):
    assert path.read_text(encoding="utf-8") == make_docs.made()[path], "run python tools/make_docs.py"


def test_the_diagram_has_every_move_and_no_other():
    moves = set(re.findall(r"^ +(\w+) --> (\w+):", make_docs.state_diagram(), re.MULTILINE))
    legal = {(a.value, b.value) for a, targets in TRANSITIONS.items() for b in targets if a is not b}
    assert moves == legal


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_index():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert page.name == "README.md" or f"]({page.name})" in index, page.name


def samples(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_samples_are_python(page):
    for sample in samples(page):
        compile(sample.replace("…", "..."), page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("name", ["admin.md", "arrow.md", "assignors.md", "asyncio.md"])
def test_samples_run(name, capsys):
    for sample in samples(DOCS / name):
        exec(compile(sample, name, "exec"), {"__name__": name})
        assert capsys.readouterr().out


def test_the_tutorial_for_testers_does_what_it_says(tmp_path):
    program, tests = samples(DOCS / "tutorial-testing.md")
    (tmp_path / "billing.py").write_text(program)
    (tmp_path / "test_billing.py").write_text(tests)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]

    def run():
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120).stdout

    first = run()
    assert "1 failed, 1 passed" in first and "CommitFailedError" in first, first
    mended = program.replace(
        "            consumer.commit()\n",
        "            try:\n                consumer.commit()\n"
        "            except kohort.CommitFailedError:\n                pass\n",
    )
    assert mended != program
    (tmp_path / "billing.py").write_text(mended)
    assert "2 passed" in run()


def test_the_reference_has_every_public_name():
    shown = set(re.findall(r"^::: kohort\.(\w+)$", (DOCS / "reference.md").read_text(), re.MULTILINE))
    assert set(kohort.__all__) <= shown
    assert dir(kohort) == sorted([*kohort.__all__, "__version__"])
    for name in kohort.__all__:
        assert (getattr(kohort, name).__doc__ or "").strip(), f"{name} has no docstring"


def queries(node):
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            yield from queries(value)
    elif isinstance(node, list):
        for value in node:
            yield from queries(value)


def test_every_metric_of_the_dashboard_is_exported():
    dashboard = json.loads((DOCS / "grafana" / "kohort.json").read_text())
    asked = {name for query in queries(dashboard) for name in re.findall(r"\b(?:kafka|kohort)_\w+", query)}
    assert len(asked) > 20
    for name in asked:
        assert any(name.removesuffix(suffix) in EXPORTED for suffix in SUFFIXES), name


def test_panels_of_the_dashboard_do_not_overlap():
    taken = set()
    for panel in json.loads((DOCS / "grafana" / "kohort.json").read_text())["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
