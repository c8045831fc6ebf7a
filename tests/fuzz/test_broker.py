"""Hostile clients and damaged files: the broker keeps serving everybody else, and starts with what can be read."""

import random
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fuzz_inputs as inputs
import fuzz_targets as targets
import kohort
from fuzz_inputs import EXAMPLES, fuzzed
from kohort.broker.groups import GroupService
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import Record, build_batch
from kohort.storage.disk_store import LogStore
from wire import WireClient, World

LIMIT_S = 60


def served_apis() -> list[tuple[str, int]]:
    table = World(groups=GroupService).core.table.apis.values()
    return [(api.name, version) for api in table for version in range(api.min_version, api.max_version + 1)]


APIS = served_apis()
apis = st.sampled_from(APIS)
seeds = st.integers(0, 2**32)


@fuzzed(120)
@given(st.lists(st.tuples(apis, seeds), min_size=1, max_size=6), st.integers(0, 600_000))
def test_damaged_requests_meet_no_handler_that_fails(requests, pause_ms: int) -> None:
    served = targets.Served()
    for (name, version), seed in requests:
        served.frame(inputs.frame(name, version, seed))
    served.time_passes(pause_ms)
    served.time_passes(3_600_000)
    served.good.call(messages.MetadataRequest(topics=None), 9)


def test_every_api_and_version_with_sound_requests_of_any_content() -> None:
    """Not damaged, only absurd: any numbers, names and bytes where they may be."""
    served = targets.Served()
    for round_number in range(3):
        for name, version in APIS:
            served.frame(inputs.frame(name, version, round_number, changes=0))
        served.time_passes(10_000)
    served.time_passes(3_600_000)
    served.good.call(messages.MetadataRequest(topics=None), 9)


# Through a socket.


@pytest.fixture(scope="module")
def broker():
    with kohort.Broker(config={"offsets.topic.num.partitions": 1, "num.partitions": 2}) as running:
        running.create_topic("orders", 2)
        yield running


@pytest.fixture(scope="module")
def good(broker):
    """A client that is there all the time and must notice nothing."""
    client = WireClient(broker.bootstrap_servers)
    client.call(messages.FindCoordinatorRequest(key=targets.GROUP), 2)
    return client


def still_served(client: WireClient) -> None:
    assert client.call(messages.MetadataRequest(topics=[]), 9).controller_id == 1
    heartbeat = messages.HeartbeatRequest(group_id="nobody", generation_id=1, member_id="m")
    assert client.call(heartbeat, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@fuzzed(60)
@given(
    st.lists(st.tuples(apis, seeds) | st.binary(max_size=60), min_size=1, max_size=5),
    st.sampled_from(["close", "reset", "half-close", "half a frame"]),
)
def test_a_hostile_connection_is_of_no_concern_to_others(broker, good, sent, end) -> None:
    hostile = socket.create_connection(("127.0.0.1", broker.port), LIMIT_S)
    try:
        for item in sent:
            hostile.sendall(item if isinstance(item, bytes) else inputs.with_size(inputs.frame(*item[0], item[1])))
        if end == "half-close":
            hostile.shutdown(socket.SHUT_WR)
        elif end == "half a frame":
            hostile.sendall(struct.pack(">i", 1000) + b"x" * 10)
        elif end == "reset":
            hostile.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass  # the broker has had enough
    finally:
        hostile.close()
    still_served(good)


def resident_kb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_half_frames_and_huge_announcements_take_no_memory(broker, good) -> None:
    before = resident_kb()
    sockets = []
    for number in range(200):
        one = socket.create_connection(("127.0.0.1", broker.port), LIMIT_S)
        one.sendall(struct.pack(">i", 100_000_000) + bytes([number]) * 1000)
        sockets.append(one)
    still_served(good)
    assert resident_kb() - before < 50_000
    for one in sockets:
        one.close()
    still_served(good)


# Files.


def offsets_directory(path: Path) -> Path:
    """A data directory with an offsets topic of one partition, a commit in it; the partition's directory."""
    store = LogStore(path)
    world = World({"offsets.topic.num.partitions": 1}, store=store, groups=GroupService)
    world.create_topic("t")
    world.connect().call(messages.FindCoordinatorRequest(key=targets.GROUP), 2)
    targets.GroupWorld.serves_groups(world)
    world.core.close()
    return path / "__consumer_offsets-0"


def damage(directory: Path, chance: random.Random) -> None:
    """One of: a broken tail, a broken middle, nonsense in place of a file, an index of nonsense, a missing file."""
    log = directory / "00000000000000000000.log"
    data = log.read_bytes()
    records = [Record(n, 1_000, chance.randbytes(9), chance.randbytes(40)) for n in range(3)]
    match chance.randrange(6):
        case 0:
            log.write_bytes(data + chance.randbytes(chance.randrange(1, 300)))
        case 1:
            log.write_bytes(inputs.mutated(data, chance, 8))
        case 2:
            log.write_bytes(chance.randbytes(chance.randrange(2000)))
        case 3:
            for index in directory.glob("*index"):
                index.write_bytes(chance.randbytes(chance.randrange(200)))
        case 4:
            nonsense = build_batch(records, base_offset=50)
            log.write_bytes(data + targets.resealed(nonsense[:61] + inputs.mutated(nonsense[61:], chance, 8)))
        case _:
            doomed = chance.choice([p for p in directory.iterdir() if p.name != "partition.metadata"])
            doomed.unlink()


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_damaged_segments_of_consumer_offsets(tmp_path, clean) -> None:
    rounds = min(EXAMPLES, 2_000) or 25
    for seed in range(rounds):
        path = tmp_path / str(seed)
        damage(offsets_directory(path), random.Random(f"{seed} {clean}" if not EXAMPLES else None))
        if not clean:
            (path / ".kafka_cleanshutdown").unlink(missing_ok=True)
        store = LogStore(path)
        with targets.no_internal_errors():
            world = targets.GroupWorld(store)
            world.load()
            world.serves_groups()
        world.core.close()
