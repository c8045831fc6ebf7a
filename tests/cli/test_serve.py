"""`kohort serve` through the real command line: its one line, its exit codes, what it says when it cannot start."""

import json
import os
import signal
import socket

import pytest

from kohort.protocol import messages
from kohort.protocol.frames import encode_request
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


def line_with(process, text):
    """The next line of the log that has this in it."""
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"the log ended without {text!r}")


def test_a_start_says_what_starts_and_sighup_takes_what_can_be_taken(tmp_path):
    given, data = tmp_path / "server.properties", tmp_path / "data"
    jaas = 'sasl.jaas.config=x required user_a="s3cret";\n'
    given.write_text(f"num.partitions=3\n{jaas}")
    arguments = ("--port", "0", "--data-dir", str(data), "--config-file", str(given))
    process = start(*arguments)
    address = process.stdout.readline().removeprefix("kohort listening on ").strip()
    line = line_with(process, "started on Python")
    assert f"data in {data} (new)" in line and "num.partitions=3" in line and "s3cret" not in line
    given.write_text(f"num.partitions=5\nmessage.max.bytes=2000\n{jaas}")
    process.send_signal(signal.SIGHUP)
    assert "taken: message.max.bytes\n" in line_with(process, "SIGHUP")
    assert "need a restart: num.partitions\n" in line_with(process, "SIGHUP")
    asked = messages.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=["message.max.bytes", "num.partitions"]
    )
    rows = WireClient(address).call(messages.DescribeConfigsRequest(resources=[asked]), 4).results[0].configs
    assert {row.name: row.value for row in rows} == {"message.max.bytes": "2000", "num.partitions": "3"}
    given.write_text("message.max.bytes=no\n")
    process.send_signal(signal.SIGHUP)
    assert "settings stay as they were" in line_with(process, "SIGHUP")
    process.kill()
    process.communicate(timeout=60)
    given.write_text("")
    process = start(*arguments)
    assert "not stopped cleanly before" in line_with(process, "started on Python")
    process.terminate()
    process.communicate(timeout=60)
    process = start(*arguments)
    assert "(stopped cleanly before)" in line_with(process, "started on Python")
    process.terminate()
    assert process.communicate(timeout=60) and process.returncode == 0


def test_sigterm_ends_a_broker_under_load():
    process = start("--memory", "--port", "0")
    address = process.stdout.readline().removeprefix("kohort listening on ").strip()
    first = WireClient(address)
    create = messages.CreateTopicsRequest
    topic = create.CreatableTopic(name="t", num_partitions=2000, replication_factor=1)
    first.call(create(topics=[topic], timeout_ms=60_000), 7)
    frame = b"".join(map(bytes, encode_request(1, "x", 9, messages.MetadataRequest(topics=None))))
    hogs = [WireClient(address) for _ in range(10)]
    for hog in hogs:
        hog.socket.sendall(frame * 100)
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "connections are closed" in err and "stopped after" in err
    assert "Traceback" not in err


def test_the_file_of_the_control_token(tmp_path):
    token = tmp_path / "token"
    for content, said in ((None, "No such file"), ("", "has to hold a token")):
        if content is not None:
            token.write_text(content)
        process = start("--memory", "--control-port", "0", "--control-token-file", str(token))
        assert said in process.communicate(timeout=60)[1] and process.returncode == 2
