"""The control port of `kohort serve`: faults, time and restarts over HTTP."""

import http.client
import json
import urllib.error
import urllib.request

import pytest

import kohort
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from serving import LIMIT_S, Serving
from wire import WireClient


class Remote:
    """What a test in any language would do."""

    def __init__(self, *arguments):
        self.serving = Serving("--control-port", "0", *arguments)
        self.url = self.serving.process.stdout.readline().removeprefix("kohort control on ").strip()

    def __call__(self, method, path, body=None, headers=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


@pytest.fixture(scope="module")
def remote():
    made = Remote("--memory", "--config", "group.initial.rebalance.delay.ms=0")
    yield made
    assert made.serving.stop() == 0


def metadata(remote):
    return WireClient(remote.serving.address).call(messages.MetadataRequest(topics=[]), 9)


def heartbeat(remote):
    request = messages.HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
    return WireClient(remote.serving.address).call(request, 3).error_code


def test_faults_come_and_go(remote):
    rule = {"action": "fail", "api": "Heartbeat", "code": "COORDINATOR_LOAD_IN_PROGRESS", "times": 2, "group": "g"}
    status, made = remote("POST", "/faults", rule)
    assert status == 201 and made["hits"] == 0
    assert heartbeat(remote) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert remote("GET", "/faults") == (200, {"faults": [made | {"hits": 1}]})
    assert remote("DELETE", f"/faults/{made['id']}") == (200, made | {"hits": 1})
    assert heartbeat(remote) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    remote("POST", "/faults", {"action": "disconnect", "api": "Metadata", "times": None})
    with pytest.raises((EOFError, ConnectionError)):
        metadata(remote)
    assert remote("DELETE", "/faults") == (200, {"faults": []})
    assert metadata(remote).controller_id == 1


def test_time_passes(remote):
    _, before = remote("GET", "/clock")
    status, after = remote("POST", "/clock/advance", {"seconds": 3600})
    assert status == 200 and after["now_ms"] >= before["now_ms"] + 3_600_000


def test_the_story_of_a_group(remote):
    client = WireClient(remote.serving.address)
    client.call(messages.FindCoordinatorRequest(key="a/b"), 2)
    kind = messages.JoinGroupRequest
    protocols = [kind.JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = kind(group_id="a/b", session_timeout_ms=6000, protocol_type="consumer", protocols=protocols)
    assert client.call(request, 0).error_code == 0
    status, story = remote("GET", "/groups/a%2Fb/story")
    assert status == 200 and "MemberJoined" in [event["type"] for event in story["events"]]
    assert remote("GET", "/groups/nobody/story") == (200, {"group": "nobody", "events": []})


def test_a_restart_keeps_port_data_and_rules(remote, tmp_path):
    for one in (remote, Remote("--data-dir", str(tmp_path))):
        kind = messages.CreateTopicsRequest
        topic = kind.CreatableTopic(name="kept", num_partitions=1, replication_factor=1)
        WireClient(one.serving.address).call(kind(topics=[topic], timeout_ms=1000), 7)
        one("POST", "/faults", {"action": "drop", "api": "Produce"})
        assert one("POST", "/broker/restart") == (200, {"bootstrap_servers": one.serving.address})
        topics = WireClient(one.serving.address).call(messages.MetadataRequest(topics=None), 9).topics
        assert "kept" in [topic.name for topic in topics]
        assert len(one("GET", "/faults")[1]["faults"]) == 1
        one("DELETE", "/faults")
    assert one.serving.stop() == 0


def test_topics_groups_and_requests(remote):
    assert remote("POST", "/topics", {"name": "t", "partitions": 2, "configs": {"retention.ms": 1000}})[0] == 201
    assert remote("POST", "/topics", {"name": "t"})[0] == 409
    with kohort.Producer(bootstrap_servers=remote.serving.address) as producer:
        producer.send("t", b"text", key=b"k", headers={"a": "b"}, partition=1)
        producer.send("t", b"\xff", partition=0)
    status, found = remote("GET", "/topics/t/records")
    assert status == 200 and [(r["partition"], r["offset"]) for r in found["records"]] == [(0, 0), (1, 0)]
    assert found["records"][0]["value_base64"] == "/w==" and found["records"][1]["value"] == "text"
    assert found["records"][1]["headers"] == [{"key": "a", "value": "b"}]
    assert len(remote("GET", "/topics/t/records?partition=1")[1]["records"]) == 1
    settings = {"bootstrap_servers": remote.serving.address, "group_id": "readers", "client_id": "reader"}
    with kohort.Consumer(**settings, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe("t")
        read = 0
        while read < 2:
            read += len(consumer.poll(0.1))
        status, group = remote("POST", "/groups/readers/wait-stable", {"members": 1, "partitions": 2})
        assert status == 200 and group["members"][0]["assignment"] == {"t": [0, 1]}
        assert remote("GET", "/groups/readers") == (200, group)
        consumer.commit()
        offsets = [{"topic": "t", "partition": p, "offset": 1} for p in (0, 1)]
        assert remote("GET", "/groups/readers/committed") == (200, {"group": "readers", "offsets": offsets})
        (commit,) = remote("GET", "/requests?api=OffsetCommit&client=reader")[1]["requests"]
        assert commit["body"]["group_id"] == "readers" and commit["at_ms"] > 0
        status, gone = remote("POST", "/groups/readers/evict", {"client": "reader"})
        assert status == 200 and gone["evicted"] == [group["members"][0]["member_id"]]
    status, answer = remote("POST", "/groups/readers/wait-stable", {"members": 3, "timeout": 0.1})
    assert status == 409 and "not stable with 3 members" in answer["error"]
    assert remote("DELETE", "/requests") == (200, {"requests": []})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "hint"),
    [
        ("GET", "/", None, 404, "no GET /"),
        ("PUT", "/faults", {}, 404, "no PUT /faults"),
        ("DELETE", "/faults/999999", None, 404, "no fault 999999"),
        ("POST", "/faults", {}, 400, "action is missing"),
        ("POST", "/faults", {"action": "explode"}, 400, "no action"),
        ("POST", "/faults", {"action": "fail", "api": "Hartbeat", "code": 16}, 400, "did you mean Heartbeat"),
        ("POST", "/faults", {"action": "drop", "colour": "red"}, 400, "no colour"),
        ("POST", "/faults", {"action": "drop", "times": "often"}, 400, "times cannot be"),
        ("POST", "/faults", [], 400, "JSON object"),
        ("POST", "/clock/advance", {"seconds": -1}, 400, "not negative"),
        ("POST", "/clock/advance", {}, 400, "seconds"),
        ("POST", "/topics", {}, 400, "name is missing"),
        ("GET", "/topics/nothing/records", None, 409, "no topic nothing"),
        ("GET", "/topics/nothing/records?partition=x", None, 400, "partition cannot be"),
        ("GET", "/requests?api=Fetsch", None, 400, "did you mean Fetch"),
        ("GET", "/requests?colour=red", None, 400, "no colour"),
        ("POST", "/groups/g/evict", {"client": "nobody"}, 404, "no member with client_id nobody"),
        ("POST", "/groups/g/evict", {}, 400, "whom"),
        ("POST", "/groups/g/wait-stable", {"timeout": 1e9}, 400, "at most 600"),
        ("PUT", "/groups/g", None, 404, "no PUT /groups/g"),
    ],
)
def test_what_cannot_be_done_says_why(remote, method, path, body, status, hint):
    code, answer = remote(method, path, body)
    assert code == status and hint in answer["error"]


def test_web_pages_and_nonsense_are_refused(remote):
    assert remote("GET", "/clock", headers={"Origin": "http://example.test"})[0] == 403
    assert remote("GET", "/clock", headers={"Host": "example.test"})[0] == 403
    host = remote.url.removeprefix("http://")
    for sent, status in ((b"what\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n" + b"a: " + b"x" * 20_000 + b"\r\n\r\n", 431)):
        connection = http.client.HTTPConnection(host, timeout=LIMIT_S)
        connection.connect()
        connection.sock.sendall(sent)
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
        assert answer.status == status
        connection.close()
    huge = http.client.HTTPConnection(host, timeout=LIMIT_S)
    huge.putrequest("POST", "/faults")
    huge.putheader("content-length", "999999999")
    huge.endheaders()
    assert huge.getresponse().status == 413
    assert remote("GET", "/clock")[0] == 200


def test_there_is_no_control_port_unless_asked_for():
    serving = Serving("--memory")
    serving.process.terminate()
    out, _ = serving.process.communicate(timeout=LIMIT_S)
    assert out == ""
