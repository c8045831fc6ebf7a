"""The broker behind a real socket: bad frames, back-pressure, limits, and that nobody suffers for another."""

import struct
import threading
import time

import pytest

import kohort
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.protocol.frames import encode_request
from wire import WireClient, batch, fetch_request, produce_request

LIMIT_S = 60


def metadata(client, version=9):
    return client.call(messages.MetadataRequest(topics=[]), version)


def wait_until(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def create(client, name, partitions=1):
    kind = messages.CreateTopicsRequest
    topic = kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    assert client.call(kind(topics=[topic], timeout_ms=1000), 7).topics[0].error_code == 0


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        struct.pack(">hhih", 3, 9, 1, 50) + b"short",
        struct.pack(">hhih", 3, 9, 1, 0) + b"\x00" + b"\xff\xff\xff\xff\x07",
        struct.pack(">hhih", 777, 0, 1, 0),
        struct.pack(">hhih", 1, 99, 1, 0),
        struct.pack(">hhih", -1, -1, -1, -1),
        struct.pack(">hhihi", 19, 4, 1, -1, 2**31 - 1),
        struct.pack(">hhih", 3, 9, 1, 2) + b"\xff\xfe\x00\x00",
    ],
    ids=["empty", "one-byte", "client-id", "array", "api", "version", "negative", "huge-array", "not-utf8"],
)
def test_a_bad_frame_closes_its_connection_and_no_other(broker, frame):
    good, bad = WireClient(broker.bootstrap_servers), WireClient(broker.bootstrap_servers)
    metadata(good)
    bad.send_frame(frame)
    assert bad.closed_by_peer()
    assert metadata(good).brokers[0].node_id == 1


@pytest.mark.parametrize("size", [-1, 2**31 - 1, 1001])
def test_an_oversized_frame_is_refused_before_it_is_read(size):
    with kohort.Broker(config={"socket.request.max.bytes": 1000}) as broker:
        client = WireClient(broker.bootstrap_servers)
        client.socket.sendall(struct.pack(">i", size) + b"x" * 100)
        assert client.closed_by_peer()
        assert metadata(WireClient(broker.bootstrap_servers)).controller_id == 1


def test_a_frame_in_single_bytes(broker):
    client = WireClient(broker.bootstrap_servers)
    frame = struct.pack(">hhih", 18, 0, 77, -1)
    for byte in struct.pack(">i", len(frame)) + frame:
        client.socket.sendall(bytes([byte]))
    assert struct.unpack_from(">i", client.receive_frame())[0] == 77


def test_large_frames_and_what_follows_them(broker):
    client = WireClient(broker.bootstrap_servers)
    create(client, "large", 3)
    large = b"".join(map(bytes, encode_request(7, "x", 9, large_produce())))
    small = b"".join(map(bytes, encode_request(8, "x", 0, messages.ApiVersionsRequest())))
    for data in (large + small, large + large + small[:5], small[5:] + large[:3], large[3:] + small):
        client.socket.sendall(data)
    expected = [7, 8, 7, 7, 8, 7, 8]
    assert [struct.unpack_from(">i", client.receive_frame())[0] for _ in expected] == expected
    for partition in range(3):
        answer = client.call(fetch_request("large", *[4] * 3, min_bytes=0), 12).responses[0].partitions[partition]
        assert answer.high_watermark == 4 and answer.error_code == 0


def large_produce():
    kind = messages.ProduceRequest
    rows = [kind.PartitionProduceData(index=index, records=batch(b"x" * 900_000)) for index in range(3)]
    return kind(acks=-1, timeout_ms=1000, topic_data=[kind.TopicProduceData(name="large", partition_data=rows)])


def test_many_requests_in_one_packet_are_answered_in_order(broker):
    client = WireClient(broker.bootstrap_servers)
    frame = b"".join(struct.pack(">ihhih", 10, 18, 0, correlation_id, -1) for correlation_id in range(3000))
    sender = threading.Thread(target=client.socket.sendall, args=(frame,))
    sender.start()
    assert [struct.unpack_from(">i", client.receive_frame())[0] for _ in range(3000)] == list(range(3000))
    sender.join()


def test_a_client_that_does_not_read_is_not_read_from(broker):
    """It can neither fill the memory of the broker nor hold up others."""
    greedy, other = WireClient(broker.bootstrap_servers), WireClient(broker.bootstrap_servers)
    create(other, "t")
    value = b"x" * 900_000
    for _ in range(8):
        assert other.call(produce_request("t", batch(value)), 9).responses[0].partition_responses[0].error_code == 0
    greedy.socket.settimeout(1)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 200_000:
            greedy.send(fetch_request("t", 0, partition_max_bytes=8 << 20), 11)
            sent += 1
    assert metadata(other).controller_id == 1
    greedy.socket.settimeout(LIMIT_S)
    # Once it reads, everything it asked for comes.
    first = greedy.receive_frame()
    assert len(first) > 7_000_000
    assert len(greedy.receive_frame()) == len(first)
    greedy.close()
    assert metadata(other).controller_id == 1


def test_a_connection_that_dies_in_the_middle_of_a_frame(broker):
    client = WireClient(broker.bootstrap_servers)
    client.socket.sendall(struct.pack(">i", 1000) + b"half")
    client.close()
    assert metadata(WireClient(broker.bootstrap_servers)).controller_id == 1


def test_max_connections():
    with kohort.Broker(config={"max.connections": 2}) as broker:
        clients = [WireClient(broker.bootstrap_servers) for _ in range(2)]
        for client in clients:
            metadata(client)
        assert WireClient(broker.bootstrap_servers).closed_by_peer()
        clients.pop().close()
        wait_until(lambda: not WireClient(broker.bootstrap_servers).closes_at_once())
        metadata(clients[0])


def test_max_connections_per_ip():
    with kohort.Broker(config={"max.connections.per.ip": 1}) as broker:
        client = WireClient(broker.bootstrap_servers)
        metadata(client)
        assert WireClient(broker.bootstrap_servers).closed_by_peer()
        metadata(client)


def test_idle_connections_are_closed_and_busy_ones_are_not():
    with kohort.Broker(config={"connections.max.idle.ms": 300}) as broker:
        idle, busy = WireClient(broker.bootstrap_servers), WireClient(broker.bootstrap_servers)
        create(busy, "t")
        metadata(idle)
        busy.send(fetch_request("t", 0, max_wait_ms=2000), 11)
        assert idle.closed_by_peer()
        assert busy.receive_frame()


def test_the_clock_can_be_advanced(broker):
    client = WireClient(broker.bootstrap_servers)
    create(client, "t")
    client.send(fetch_request("t", 0, max_wait_ms=3_600_000), 11)
    wait_until(lambda: len(broker._running.core.purgatory) == 1)
    broker.clock.advance(3600)
    assert client.receive_frame()
    with pytest.raises(ValueError, match="does not go back"):
        broker.clock.advance(-1)


def test_several_brokers_in_one_process():
    with kohort.Broker() as one, kohort.Broker() as two:
        create(WireClient(one.bootstrap_servers), "only-on-one")
        topics = WireClient(two.bootstrap_servers).call(messages.MetadataRequest(topics=None), 9).topics
        assert topics == [] and one.bootstrap_servers != two.bootstrap_servers


def test_a_port_in_use_is_an_error_in_the_callers_thread(broker):
    with pytest.raises(RuntimeError, match=f"port {broker.port} on 127.0.0.1 is in use"):
        kohort.Broker(port=broker.port).start()


def test_bad_configs_are_refused_at_once():
    with pytest.raises(ValueError, match=r"Did you mean num\.partitions"):
        kohort.Broker(config={"num.partition": 1})
    with pytest.raises(ValueError, match="HOST:PORT"):
        kohort.Broker(config={"advertised.listeners": "nowhere"})


def test_a_data_directory_is_used_by_one_broker_only(tmp_path):
    with (
        kohort.Broker(data_dir=tmp_path),
        pytest.raises(RuntimeError, match="in use by another broker"),
    ):
        kohort.Broker(data_dir=tmp_path).start()
    with kohort.Broker(data_dir=tmp_path):
        pass


def test_a_file_is_no_data_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="not a directory"):
        kohort.Broker(data_dir=tmp_path / "file").start()


def test_the_advertised_listener_is_what_clients_are_told():
    with kohort.Broker(config={"advertised.listeners": "PLAINTEXT://example.test:1234"}) as broker:
        (node,) = metadata(WireClient(broker.bootstrap_servers)).brokers
        assert (node.host, node.port) == ("example.test", 1234)


@pytest.mark.parametrize("files", [False, True])
def test_restart_keeps_records_and_the_port(tmp_path, files):
    with kohort.Broker(data_dir=tmp_path if files else None) as broker:
        client = WireClient(broker.bootstrap_servers)
        create(client, "t")
        client.call(produce_request("t", batch(b"kept")), 9)
        address = broker.bootstrap_servers
        broker.restart()
        assert broker.bootstrap_servers == address
        answer = WireClient(address).call(fetch_request("t", 0), 11)
        assert b"kept" in bytes(answer.responses[0].partitions[0].records)


def test_without_uvloop(monkeypatch):
    """Plain asyncio serves the same."""
    import sys

    monkeypatch.setitem(sys.modules, "uvloop", None)
    with kohort.Broker() as broker:
        assert type(broker._loop).__module__.startswith("asyncio")
        client = WireClient(broker.bootstrap_servers)
        create(client, "t")
        value = b"x" * 900_000
        assert client.call(produce_request("t", batch(value)), 9).responses[0].partition_responses[0].error_code == 0
        answer = client.call(fetch_request("t", 0), 11)
        assert value in bytes(answer.responses[0].partitions[0].records)


def test_stopping_twice_and_using_a_stopped_broker():
    broker = kohort.Broker().start()
    broker.stop()
    broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers


def test_wrong_crc_over_the_wire(broker):
    client = WireClient(broker.bootstrap_servers)
    create(client, "t")
    damaged = bytearray(batch(b"abc"))
    damaged[-2] ^= 1
    row = client.call(produce_request("t", bytes(damaged)), 9).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.CORRUPT_MESSAGE
