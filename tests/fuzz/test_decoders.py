"""Every decoder of foreign bytes: it understands them or says that it does not, and costs no more than they do."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fuzz_inputs as inputs
import fuzz_sasl
import fuzz_targets as targets
from fuzz_inputs import fuzzed
from kohort.protocol import messages
from kohort.protocol.wire import DecodeError
from kohort.records.batch import Record, build_batch
from message_filler import fill, messages_and_versions

HEADERS = (("h", b"x"),)


@fuzzed(300)
@given(st.lists(st.integers(0, 40) | st.sampled_from([-1, 5000, 2**31 - 1]), max_size=6), st.binary(max_size=120))
def test_frames(sizes: list[int], data: bytes) -> None:
    stream = b"".join((size & 0xFFFFFFFF).to_bytes(4, "big") + data[: max(size, 0)] for size in sizes)
    targets.frame_splitter(data[:8].ljust(8, b"\3") + stream)
    targets.frame_splitter(data)


@fuzzed(300)
@given(st.integers(0, 2**32), st.binary(max_size=60))
def test_requests(seed: int, data: bytes) -> None:
    chance = random.Random(seed)
    index = chance.randrange(len(targets.REQUESTS))
    kind = getattr(messages, targets.REQUESTS[index])
    step = chance.randrange(kind.MAX_VERSION - kind.MIN_VERSION + 1)
    body = fill(targets.REQUESTS[index], kind.MIN_VERSION + step, seed).encode(kind.MIN_VERSION + step)
    targets.request_codec(bytes([index, step]) + inputs.mutated(body, chance))
    targets.request_codec(bytes([index, step]) + data)
    targets.response_codec(bytes([index, step]) + data)


@fuzzed(300)
@given(st.integers(0, 2**32), st.binary(max_size=200))
def test_record_batches(seed: int, data: bytes) -> None:
    chance = random.Random(seed)
    targets.record_batches(inputs.mutated(inputs.small_batch(chance), chance))
    targets.record_batches(inputs.small_batch(chance)[:61] + data)
    targets.record_batches(data)


@fuzzed(300)
@given(st.integers(0, 2**32), st.binary(max_size=100))
def test_bodies_of_records(seed: int, data: bytes) -> None:
    """Those of a sound batch with something wrong in them, in the codec that the batch has."""
    chance = random.Random(seed)
    count = chance.randrange(1, 4)
    records = [Record(n, 1_000, chance.choice([None, b"k"]), chance.randbytes(9), HEADERS) for n in range(count)]
    body = build_batch(records)[61:]
    for codec in range(5):
        targets.record_bodies(bytes([count, codec]) + inputs.mutated(body, chance, 2))
    targets.record_bodies(data)


@fuzzed(300)
@given(st.integers(0, 2**32), st.binary(max_size=100))
def test_messages_of_sasl(seed: int, data: bytes) -> None:
    chance = random.Random(seed)
    mechanism = chance.choice(fuzz_sasl.MECHANISMS)
    for side, target in enumerate((fuzz_sasl.sasl_messages_of_clients, fuzz_sasl.sasl_messages_of_brokers)):
        said = list(fuzz_sasl.transcript(mechanism)[side])
        if chance.randrange(4):
            at = chance.randrange(len(said))
            said[at] = inputs.mutated(said[at], chance, 2)
        target(fuzz_sasl.framed(mechanism, said))
        target(data)


@pytest.mark.parametrize("rounds", [b"0", b"-1", b"4095", b"1000001", b"2147483647", b"9" * 30, b"1e5", b"x"])
def test_a_broker_cannot_have_a_client_compute_for_hours(rounds: bytes) -> None:
    first = fuzz_sasl.transcript("SCRAM-SHA-256")[1][0]
    said = [first[: first.rindex(b"i=") + 2] + rounds]
    fuzz_sasl.sasl_messages_of_brokers(fuzz_sasl.framed("SCRAM-SHA-256", said))


COORDINATOR_RECORDS = [
    (name, version)
    for name, version in messages_and_versions()
    if name in ("OffsetCommitKey", "GroupMetadataKey", "OffsetCommitValue", "GroupMetadataValue")
]


def coordinator_record(chance: random.Random) -> tuple[bytes, bytes]:
    """A key and a value that may not belong together, one of them perhaps damaged."""
    made = []
    for ending in ("Key", "Value"):
        name, version = chance.choice([row for row in COORDINATOR_RECORDS if row[0].endswith(ending)])
        number = version.to_bytes(2, "big")
        if ending == "Key":
            number = b"\0\2" if name == "GroupMetadataKey" else chance.choice([b"\0\0", b"\0\1"])
        message = fill(name, version, chance.randrange(1 << 16))
        if hasattr(message, "group"):
            message.group = chance.choice([targets.GROUP, message.group])
        made.append(inputs.mutated(number + message.encode(version), chance, 2))
    return made[0][:255], made[1]


@fuzzed(150)
@given(st.integers(0, 2**32), st.binary(max_size=100))
def test_the_loader_of_consumer_offsets(seed: int, data: bytes) -> None:
    key, value = coordinator_record(random.Random(seed))
    for given_bytes in (bytes([len(key)]) + key + value, data):
        targets.coordinator_record(given_bytes)
        targets.offsets_loader(given_bytes)


def test_absurd_numbers_cost_no_memory() -> None:
    """A length or count in a request may be any number; what is built from it is not larger than the request allows."""
    chance = random.Random(1)
    rows = [(name, version) for name, version in messages_and_versions() if name.endswith("Request")]
    latest = {name: version for name, version in rows}
    tracemalloc.start()
    try:
        for name, version in latest.items():
            kind, body = getattr(messages, name), fill(name, version, 1).encode(version)
            kind.reader(version)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(20):
                at = chance.randrange(len(body) + 1)
                number = chance.choice(inputs.INTERESTING[7:12])
                try:
                    kind.decode(body[:at] + number + body[at + len(number) :], version)
                except DecodeError:
                    pass
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < 1_000_000, f"{name} v{version}: {peak} bytes for a request of {len(body)}"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_every_target_takes_nothing(name: str) -> None:
    for data in (b"", b"\0", b"\xff" * 100):
        targets.TARGETS[name](data)
