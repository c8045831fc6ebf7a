"""The pytest plugin as its users have it: pytest in a process of its own, in a directory that knows nothing of us."""

import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "test_my_application.py"
LIMIT_S = 300


def run_pytest(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LIMIT_S)
    return done.stdout + done.stderr


def test_pytest_finds_the_plugin_by_itself():
    (found,) = [entry for entry in entry_points(group="pytest11") if entry.name == "kohort"]
    assert found.value == "kohort.testing"


@pytest.mark.timeout(LIMIT_S)
def test_the_example(tmp_path):
    shutil.copy(EXAMPLE, tmp_path)
    out = run_pytest(tmp_path)
    assert "4 passed" in out, out


def test_every_test_has_a_broker_of_its_own(tmp_path):
    (tmp_path / "test_it.py").write_text(
        """
import kohort, pytest

seen = []

@pytest.mark.parametrize("number", [1, 2])
def test_topics(kohort_broker, kohort_topic, number):
    first, second = kohort_topic(), kohort_topic(partitions=3, records=[b"a", (b"key", b"b"), b"c"])
    assert first != second
    with kohort.Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        assert set(admin.list_topics()) == {first, second}
    seen.append(kohort_broker)
    assert len(set(map(id, seen))) == number

@pytest.mark.kohort(clock="manual", config={"num.partitions": 7})
def test_markers(kohort_broker, kohort_clock):
    assert kohort_clock is kohort_broker.clock
    before = kohort_clock.now_ms()
    kohort_clock.advance(1.5)
    assert kohort_clock.now_ms() == before + 1500
    assert kohort_broker.config["num.partitions"] == 7

def test_questions(kohort_topic, kohort_records, kohort_committed, kohort_requests, kohort_wait_stable, kohort_evict,
                   kohort_faults):
    topic = kohort_topic(records=[b"a"])
    assert [record.value for record in kohort_records(topic)] == [b"a"]
    assert kohort_committed("g") == {} and kohort_wait_stable("g", members=0).state == "Dead"
    assert kohort_requests("Produce") and list(kohort_faults) == []
    with pytest.raises(LookupError):
        kohort_evict("g", client="nobody")

@pytest.mark.kohort("manual")
def test_wrong_marker(kohort_broker):
    pass
"""
    )
    out = run_pytest(tmp_path, "--strict-markers")
    assert "4 passed, 1 error" in out, out
    assert "takes keyword arguments" in out


def test_the_plugin_costs_a_test_run_nothing(tmp_path):
    (tmp_path / "test_it.py").write_text(
        """
import sys

def test_nothing():
    assert "kohort.testing" in sys.modules
    assert "kohort.broker.embedded" not in sys.modules and "uvloop" not in sys.modules
"""
    )
    assert "1 passed" in run_pytest(tmp_path)
