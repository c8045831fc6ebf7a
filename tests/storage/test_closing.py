"""The end of many logs: how much is synced, and what happens where that fails."""

import os

import pytest

from kohort.storage import LogConfig, LogStore, closing
from storage_world import batch, open_store, records_of


@pytest.fixture
def synced(monkeypatch):
    """The files and directories that are synced one by one."""
    found = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def sync(fd, real=real):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
            real(fd)

        monkeypatch.setattr(os, name, sync)
    return found


def filled(path, count):
    store = LogStore(path)
    store.load(lambda topic: LogConfig(), now_ms=0)
    for index in range(count):
        store.create("t", index, bytes(16), LogConfig(), now_ms=0).append(batch([("k", "v")]), leader_epoch=0, now_ms=0)
    return store


def of_logs(synced):
    return [path for path in synced if "/t-" in path]


def test_many_logs_are_brought_to_the_disk_at_once(tmp_path, monkeypatch, synced):
    asked = []

    def sync(fd):
        asked.append(fd)
        assert all((tmp_path / f"t-{index}/{0:020d}.log").stat().st_size for index in range(closing.MANY))
        return True

    monkeypatch.setattr(closing, "sync_file_system", sync)
    store = filled(tmp_path, closing.MANY)
    store.close()
    assert len(asked) == 1
    assert not of_logs(synced)
    again = open_store(tmp_path)
    assert again.was_clean
    assert all(log.durable_offset == log.end_offset == 1 for log in again.logs.values())
    assert len(records_of(again.get("t", closing.MANY - 1))) == 1
    again.close()


def test_where_the_file_system_cannot_say_that_all_is_well_each_log_is_synced(tmp_path, monkeypatch, synced):
    monkeypatch.setattr(closing, "sync_file_system", lambda fd: False)
    filled(tmp_path, closing.MANY).close()
    assert len({path for path in of_logs(synced) if path.endswith(".log")}) == closing.MANY
    assert len({path for path in of_logs(synced) if not path.endswith(".log")}) == closing.MANY


def test_few_logs_are_synced_by_themselves_and_nobody_waits_for_the_files_of_others(tmp_path, monkeypatch, synced):
    monkeypatch.setattr(closing, "sync_file_system", lambda fd: pytest.fail("the whole file system was synced"))
    filled(tmp_path, closing.MANY - 1).close()
    assert len([path for path in of_logs(synced) if path.endswith(".log")]) == closing.MANY - 1


def test_a_partition_on_another_file_system_is_synced_by_itself(tmp_path, monkeypatch, synced):
    monkeypatch.setattr(closing, "sync_file_system", lambda fd: True)
    store = filled(tmp_path, closing.MANY)
    real, elsewhere = os.stat, f"{tmp_path}/t-7"

    def stat(path, *rest, **options):
        found = real(path, *rest, **options)
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:]]) if str(path) == elsewhere else found

    monkeypatch.setattr(os, "stat", stat)
    store.close()
    assert set(of_logs(synced)) == {elsewhere, f"{elsewhere}/{0:020d}.log"}


def test_a_log_that_failed_stays_failed_and_the_stop_is_not_clean(tmp_path, monkeypatch):
    monkeypatch.setattr(closing, "sync_file_system", lambda fd: True)
    store = filled(tmp_path, closing.MANY + 1)
    broken = store.get("t", 3)
    broken.failure = closing.StorageError("the disk is gone")
    durable = broken.durable_offset
    store.close()
    assert broken.durable_offset == durable
    again = LogStore(tmp_path)
    assert not again.was_clean
    again.close()


def test_only_file_systems_that_are_known_are_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(closing, "_TRUSTED", frozenset())
    with open(tmp_path / "file", "wb") as file:
        assert not closing.sync_file_system(file.fileno())
