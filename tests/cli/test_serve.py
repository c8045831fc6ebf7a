"""`kohort serve` through the real command line: its one line, its exit codes, what it says when it cannot start."""

import json
import os
import signal
import socket

import pytest

from kohort.protocol import messages
from serving import LIMIT_S, Serving, start
from wire import WireClient, batch, fetch_request, produce_request


def refused(*arguments):
    process = start(*arguments)
    out, err = process.communicate(timeout=LIMIT_S)
    assert out == ""
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    return process.returncode, lines[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_line_then_a_clean_stop(number):
    process = start("--memory", "--port", "0")
    line = process.stdout.readline()
    host, _, port = line.removeprefix("kohort listening on ").strip().rpartition(":")
    assert host == "127.0.0.1" and WireClient(f"{host}:{port}").call(messages.MetadataRequest(topics=[]), 9)
    process.send_signal(number)
    out, _ = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, "")


def test_records_survive_a_clean_stop(tmp_path):
    serving = Serving("--data-dir", str(tmp_path / "new" / "dir"), "--config", "num.partitions=2")
    client = WireClient(serving.address)
    kind = messages.MetadataRequest
    request = kind(topics=[kind.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    assert len(client.call(request, 9).topics[0].partitions) == 2
    client.call(produce_request("t", batch(b"kept", timestamp=2**41)), 9)
    assert client.call(produce_request("t", batch(b"kept")), 9).responses[0].partition_responses[0].error_code == 0
    assert serving.stop() == 0
    again = Serving("--data-dir", str(tmp_path / "new" / "dir"))
    row = WireClient(again.address).call(fetch_request("t", 0), 11).responses[0].partitions[0]
    assert b"kept" in bytes(row.records)
    again.stop()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--bogus"], "no such option: --bogus"),
        (["--port", "x"], "--port"),
        (["--port", "70000"], "0 to 65535"),
        (["--memory", "--data-dir", "x"], "exclude each other"),
        (["--memory", "--config", "novalue"], "KEY=VALUE"),
        (["--memory", "--config", "num.partition=2"], "Did you mean num.partitions?"),
        (["--memory", "--config", "num.partitions=zero"], "Not a number of type INT"),
        (["--memory", "--advertised-listener", "x"], "HOST:PORT"),
        (["--log-level", "loud"], "--log-level"),
    ],
)
def test_a_wrong_command_line_exits_with_2_and_one_sentence(arguments, says):
    code, line = refused(*arguments)
    assert code == 2 and says in line and line.startswith("kohort serve: ")


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, line = refused("--memory", "--port", str(port))
    assert code == 1 and f"port {port} on 127.0.0.1 is in use" in line


def test_a_data_directory_in_use(tmp_path):
    serving = Serving("--data-dir", str(tmp_path))
    code, line = refused("--data-dir", str(tmp_path), "--port", "0")
    assert code == 1 and "in use by another broker" in line and str(serving.process.pid) in line
    serving.stop()


def test_a_data_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    code, line = refused("--data-dir", str(tmp_path / "file"), "--port", "0")
    assert code == 1 and "not a directory" in line
    code, line = refused("--data-dir", str(tmp_path / "file" / "below"), "--port", "0")
    assert code == 1 and "cannot use the data directory" in line
    if os.geteuid() != 0:
        (tmp_path / "sealed").mkdir(mode=0o500)
        code, line = refused("--data-dir", str(tmp_path / "sealed"), "--port", "0")
        assert code == 1 and "Permission denied" in line


def test_a_damaged_state_file(tmp_path):
    (tmp_path / "kohort.state.json").write_text("{")
    code, line = refused("--data-dir", str(tmp_path), "--port", "0")
    assert code == 1 and "damaged" in line


def test_json_logs(tmp_path):
    process = start("--memory", "--port", "0", "--log-format", "json")
    address = process.stdout.readline().removeprefix("kohort listening on ").strip()
    kind = messages.MetadataRequest
    request = kind(topics=[kind.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    WireClient(address).call(request, 9)
    process.terminate()
    _, err = process.communicate(timeout=LIMIT_S)
    lines = [json.loads(line) for line in err.splitlines()]
    assert any("created topic t" in line["message"] for line in lines)
    assert {"time_ms", "level", "logger", "message"} <= set(lines[0])


def test_the_advertised_listener():
    serving = Serving("--memory", "--advertised-listener", "example.test:1234")
    (node,) = WireClient(serving.address).call(messages.MetadataRequest(topics=[]), 9).brokers
    assert (node.host, node.port) == ("example.test", 1234)
    serving.stop()


def test_a_properties_file(tmp_path):
    given = tmp_path / "server.properties"
    given.write_text(
        f"# as Kafka's\nnode.id=7\nlog.dirs={tmp_path / 'data'}\nlisteners=PLAINTEXT://127.0.0.1:0,B://127.0.0.1:0\n"
        "listener.security.protocol.map=B:PLAINTEXT\n"
    )
    serving = Serving("--config-file", str(given), "--config", "num.partitions=3")
    line = serving.process.stdout.readline()
    assert serving.address.endswith("(PLAINTEXT, PLAINTEXT)") and "(B, PLAINTEXT)" in line
    answer = WireClient(serving.address.split()[0]).call(messages.MetadataRequest(topics=[]), 9)
    assert [node.node_id for node in answer.brokers] == [7]
    serving.process.send_signal(signal.SIGHUP)
    assert WireClient(serving.address.split()[0]).call(messages.ApiVersionsRequest(), 0).error_code == 0
    assert serving.stop() == 0
    assert (tmp_path / "data" / "kohort.state.json").exists()
    given.write_text("nmu.partitions=3\n")
    assert "num.partitions" in start("--config-file", str(given)).communicate(timeout=60)[1]
