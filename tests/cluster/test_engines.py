"""The four verbs, on every engine: of all who create a name one succeeds, and whoever does not know looks."""

import os
import re
import select
import shutil
import subprocess
import sys
import threading
from functools import partial

import pytest

from kohort.cluster import create_library, directory_engine
from kohort.cluster.directory_engine import DirectoryEngine
from kohort.cluster.engine import EngineError, Exists, Missing, claim
from kohort.cluster.memory_engine import MemoryStore, Mishap
from kohort.cluster.open_engine import open_engine, probe
from serving import environment


@pytest.fixture(params=["memory", "directory", "s3"])
def engine(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore().engine()
    elif request.param == "directory":
        yield DirectoryEngine(tmp_path / "store")
    else:
        yield request.getfixturevalue("bucket")


def test_an_object_is_created_once_and_read_whole(engine):
    engine.create("journal/1.1/000001", b"first")
    with pytest.raises(Exists):
        engine.create("journal/1.1/000001", b"second")
    assert engine.get("journal/1.1/000001") == b"first"
    with pytest.raises(Missing):
        engine.get("journal/1.1/000002")


def test_names_are_listed_in_order_and_by_their_prefix(engine):
    for name in ("meta/000002", "meta/000001", "metal/000001"):
        engine.create(name, b"x")
    assert engine.list("meta/") == ["meta/000001", "meta/000002"]
    assert engine.list("nothing/") == []


def test_what_is_deleted_is_gone_and_may_be_deleted_again(engine):
    engine.create("alive/1.1.1", b"")
    engine.delete("alive/1.1.1")
    engine.delete("alive/1.1.1")
    assert engine.list("alive/") == []


def test_many_are_deleted_at_once_whether_they_are_there_or_not(engine):
    for number in range(5):
        engine.create(f"journal/1.1/{number}", b"x")
    engine.delete_all([])
    engine.delete_all([f"journal/1.1/{number}" for number in (0, 1, 3, 7)])
    assert engine.list("journal/1.1/") == ["journal/1.1/2", "journal/1.1/4"]


def test_questions_asked_together_are_answered_in_order_and_the_first_that_fails_is_told_of(engine):
    for number in range(100):
        engine.create(f"journal/1.1/{number:03d}", str(number).encode())
    names = engine.list("journal/1.1/")
    assert list(engine.together([partial(engine.get, name) for name in names])) == [b"%d" % n for n in range(100)]
    assert not engine.together([])
    with pytest.raises(Missing, match=r"journal/1\.1/b"):
        engine.together([partial(engine.get, f"journal/1.1/{name}") for name in ("001", "b", "c")])


def test_a_race_has_one_winner(engine):
    probe(engine, "abc")
    assert engine.list("probe/") == []


def test_a_claim_knows_its_own_object(engine):
    assert claim(engine, "meta/1", b"mine") is None
    assert claim(engine, "meta/1", b"mine") is None
    assert claim(engine, "meta/1", b"another's") == b"mine"


def test_a_request_that_was_applied_and_retried_by_the_library_is_known_as_ones_own():
    engine = MemoryStore().engine(lambda verb, name: Mishap.RETRIED if verb == "create" else Mishap.NONE)
    with pytest.raises(Exists):
        engine.create("meta/1", b"mine")
    assert claim(engine, "meta/2", b"mine") is None


def test_a_lost_answer_is_no_answer_and_asking_again_tells():
    mishaps = iter([Mishap.LOST_ANSWER])
    engine = MemoryStore().engine(lambda verb, name: next(mishaps, Mishap.NONE))
    with pytest.raises(EngineError):
        claim(engine, "meta/1", b"mine")
    assert claim(engine, "meta/1", b"mine") is None


def test_a_store_that_is_not_atomic_is_refused():
    class Overwriting(type(MemoryStore().engine())):
        barrier = threading.Barrier(8)

        def create(self, name, data):
            self.barrier.wait(10)
            self.store.objects[name] = data

        def delete(self, name):
            self.store.objects.pop(name, None)

    with pytest.raises(EngineError, match="not atomic"):
        probe(Overwriting(MemoryStore()), "abc")


def test_processes_that_race_for_names_in_a_directory_have_one_winner_each(tmp_path):
    program = f"""
from kohort.cluster.directory_engine import DirectoryEngine
from kohort.cluster.engine import Exists
import os
engine = DirectoryEngine({str(tmp_path)!r})
for number in range(100):
    try:
        engine.create(f"meta/{{number}}", str(os.getpid()).encode())
        print(number)
    except Exists:
        pass
"""
    racers = [
        subprocess.Popen([sys.executable, "-c", program], env=environment(), stdout=subprocess.PIPE) for _ in range(3)
    ]
    won = [int(line) for racer in racers for line in racer.communicate(timeout=60)[0].split()]
    assert sorted(won) == list(range(100))


WAYS = [
    pytest.param(
        "in_one_call",
        marks=pytest.mark.skipif(directory_engine.in_one_call() is None, reason="no compiler was there to build it"),
    ),
    "in_steps",
]


@pytest.fixture(params=WAYS)
def folder(request, tmp_path, monkeypatch):
    """An engine of a directory that creates with its library, and without."""
    if request.param == "in_steps":
        monkeypatch.setattr(directory_engine, "in_one_call", lambda: None)
    return DirectoryEngine(tmp_path / "größe")


def test_nothing_is_left_aside_in_a_directory(folder):
    folder.create("meta/1", b"x" * 100_000)
    with pytest.raises(Exists):
        folder.create("meta/1", b"y")
    assert folder.get("meta/1") == b"x" * 100_000
    assert os.listdir(folder.root / ".tmp") == []


def test_an_object_may_hold_any_bytes(folder):
    for name, data in (("a/empty", b""), ("a/zeros", bytes(10)), ("a/large", os.urandom(1 << 20))):
        folder.create(name, data)
        assert folder.get(name) == data


@pytest.mark.parametrize("gone", [".tmp", "meta"])
def test_a_directory_that_is_taken_away_is_an_error_with_its_reason(folder, gone):
    folder.create("meta/1", b"x")
    shutil.rmtree(folder.root / gone)
    with pytest.raises(EngineError, match=r"cannot write meta/2 in .*: No such file or directory"):
        folder.create("meta/2", b"y")


def test_who_finds_a_name_taken_can_rest_on_it(tmp_path, monkeypatch):
    """Whoever linked it may have been killed before the directory was synced."""
    synced = []
    monkeypatch.setattr(directory_engine, "in_one_call", lambda: None)
    monkeypatch.setattr(directory_engine, "_sync", synced.append)
    engine = DirectoryEngine(tmp_path)
    engine.create("meta/1", b"x")
    synced.clear()
    assert claim(engine, "meta/1", b"x") is None
    assert synced == [f"{tmp_path}/meta"]


# ---- without a thread that waits


@pytest.fixture
def creating(tmp_path):
    engine = DirectoryEngine(tmp_path / "größe")
    creating = engine.creating()
    if creating is None:
        pytest.skip("no compiler was there to build the library")
    engine.create("journal/1.1/0", b"made first, and the folder with it")
    yield engine, creating
    creating.close()


def ends(creating, count):
    found = []
    while len(found) < count:
        assert select.select([creating.fd], [], [], 60)[0], f"{found} have ended, of {count}"
        found += creating.ended()
    return dict(found)


def test_many_are_created_while_nobody_waits(creating):
    engine, creating = creating
    objects = {f"journal/1.1/{number}": os.urandom(number * 1000) for number in range(1, 40)}
    for name, data in objects.items():
        assert creating.begin(name, name, data)
    assert ends(creating, len(objects)) == dict.fromkeys(objects)
    assert {name: engine.get(name) for name in objects} == objects
    assert creating.ended() == []
    assert os.listdir(engine.root / ".tmp") == []


def test_what_goes_wrong_meanwhile_is_what_create_raises(creating):
    engine, creating = creating
    engine.create("journal/1.1/1", b"another's")
    assert not creating.begin("no folder", "journal/2.1/0", b"x")
    creating.begin("taken", "journal/1.1/1", b"ours")
    assert isinstance(ends(creating, 1)["taken"], Exists)
    assert engine.get("journal/1.1/1") == b"another's"
    shutil.rmtree(engine.root / "journal/1.1")
    creating.begin("gone", "journal/1.1/2", b"x")
    error = ends(creating, 1)["gone"]
    assert isinstance(error, EngineError)
    assert re.match(r"cannot write journal/1.1/2 in .*: No such file or directory", str(error))


def test_a_process_that_was_forked_creates_too(creating):
    """Threads stay behind in the parent."""
    engine, creating = creating
    creating.begin("parent", "journal/1.1/1", b"x")
    ends(creating, 1)
    child = os.fork()
    if not child:
        status = 1
        try:
            own = engine.creating()
            own.begin("child", "journal/1.1/2", b"y")
            status = 0 if select.select([own.fd], [], [], 60)[0] and own.ended() == [("child", None)] else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    creating.begin("parent again", "journal/1.1/3", b"z")
    assert ends(creating, 1) == {"parent again": None}
    assert engine.get("journal/1.1/2") == b"y"


def test_without_the_library_threads_create(tmp_path, monkeypatch):
    monkeypatch.setattr(directory_engine, "in_one_call", lambda: None)
    assert DirectoryEngine(tmp_path).creating() is None


@pytest.mark.parametrize("library", ["as it is", "none"])
def test_many_are_deleted_at_once(tmp_path, monkeypatch, library):
    if library == "none":
        monkeypatch.setattr(create_library, "_library", lambda: None)
    engine = DirectoryEngine(tmp_path)
    for number in range(5):
        engine.create(f"journal/1.1/{number}", b"x")
    engine.delete_all([f"journal/1.1/{number}" for number in (0, 1, 3, 7)])
    assert engine.list("journal/1.1/") == ["journal/1.1/2", "journal/1.1/4"]
    engine.delete_all([])
    with pytest.raises(EngineError, match="cannot delete"):
        engine.delete_all(["journal/1.1", "journal/1.1/2"])


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://somewhere", "no store for a cluster"),
        ("/var/lib/kohort", "no store for a cluster"),
        ("file://host/path", "write it as file:///path"),
        ("file:///proc/kohort", "make it writable"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_with_a_sentence(url, reason):
    with pytest.raises(EngineError, match=reason):
        open_engine(url)


def test_what_the_environment_says_of_a_bucket_counts(moto, bucket, monkeypatch):
    """As for brokers that are processes: nothing else tells them where the bucket is, and that it needs no https."""
    monkeypatch.setenv("AWS_ENDPOINT", moto)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    engine = open_engine(bucket.name)
    with pytest.raises(EngineError, match="set AWS_ALLOW_HTTP=true"):
        engine.create("a/b", b"")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    open_engine(bucket.name).create("a/b", b"there")
    assert bucket.get("a/b") == b"there"


def test_what_a_killed_process_had_aside_is_removed_when_it_is_old(tmp_path):
    engine = DirectoryEngine(tmp_path)
    code = (
        "import os, signal, sys; from kohort.cluster import directory_engine as d\n"
        "os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "engine = d.DirectoryEngine(sys.argv[1]); engine._create = d.in_steps; engine.create('meta/1', b'half')"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment()).returncode == -9
    (left,) = (tmp_path / ".tmp").iterdir()
    DirectoryEngine(tmp_path)
    assert left.read_bytes() == b"half"  # somebody may be writing it
    written_s = left.stat().st_mtime - directory_engine._ABANDONED_S - 1
    os.utime(left, (written_s, written_s))
    DirectoryEngine(tmp_path, create=False)
    assert left.exists()  # who only looks removes nothing
    DirectoryEngine(tmp_path)
    assert list((tmp_path / ".tmp").iterdir()) == []
    assert claim(engine, "meta/1", b"whole") is None


@pytest.mark.parametrize("after_the_link", [False, True])
def test_whoever_loses_what_it_had_aside_does_not_know_how_it_ended_and_writes_again(
    tmp_path, monkeypatch, after_the_link
):
    engine = DirectoryEngine(tmp_path)
    engine._create = directory_engine.in_steps
    link = os.link

    def slow(aside, path):
        if after_the_link:
            link(aside, path)
        os.unlink(aside)
        if not after_the_link:
            link(aside, path)

    monkeypatch.setattr(os, "link", slow)
    with pytest.raises(EngineError, match="cannot write meta/1"):
        claim(engine, "meta/1", b"mine")
    monkeypatch.setattr(os, "link", link)
    assert claim(engine, "meta/1", b"mine") is None
    assert engine.get("meta/1") == b"mine"
