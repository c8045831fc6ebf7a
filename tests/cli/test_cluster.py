"""`kohort cluster status`, `move` and `drain`: from a store without brokers, and where there is one broker."""

import pytest

from kohort.cluster import meta_log
from kohort.cluster.directory_engine import DirectoryEngine

LEAD = {"kind": "lead", "topic": "id", "partition": 0, "leader": 1, "epoch": 0}


@pytest.fixture
def store(tmp_path):
    engine = DirectoryEngine(tmp_path)
    meta_log.found_cluster(engine, "the-cluster", "nonce")
    for version, changes in enumerate(
        [
            [_register(1), _register(2)],
            [{"kind": "topic", "topic": "id", "name": "orders", "partitions": 1, "configs": {}}, LEAD],
            [
                {"kind": "fence", "node": 1, "incarnation": 1, "at_ms": 2000, "reason": "no sign of life for 9000 ms"},
                LEAD | {"leader": 2, "epoch": 1},
            ],
            [{"kind": "broker_configs", "node": None, "configs": {"kohort.cluster.drained.brokers": "2"}}],
        ],
        1,
    ):
        assert meta_log.propose(engine, version, changes, f"nonce {version}")
    return f"file://{tmp_path}"


def _register(node_id):
    address = {"host": "localhost", "port": 9090 + node_id}
    return {"kind": "register", "node": node_id, "incarnation": 1, "at_ms": 1000, "reason": "started", **address}


def test_a_cluster_without_brokers_is_told_from_its_store(k, store):
    found = k("cluster", "status", "--cluster", store, "--json").json()
    assert [(row["id"], row["status"], row["drained"], row["leads"]) for row in found["brokers"]] == [
        (1, "fenced", False, 0),
        (2, "live", True, 1),
    ]
    assert found["partitions"] == [{"topic": "orders", "partition": 0, "leader": 2, "epoch": 1, "wanted": None}]
    shown = k("cluster", "status", "--cluster", store, "--partitions").out
    assert "no sign of life for 9000 ms" in shown and "live, drained" in shown and "orders" in shown


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file:///no/such/place", "there is no directory /no/such/place"),
        ("fil:///x", "did you mean file://"),
        ("/var/lib/kohort", "did you mean file:///var/lib/kohort"),
    ],
)
def test_a_store_that_is_none_gets_a_sentence(k, place, said):
    assert said in k.refused("cluster", "status", "--cluster", place, code=1)


def test_an_empty_directory_is_no_cluster(k, tmp_path):
    assert "there is no cluster in" in k.refused("cluster", "status", "--cluster", f"file://{tmp_path}", code=1)
    assert list(tmp_path.iterdir()) == [], "looking writes nothing"


def test_one_broker(k, topic):
    assert [row["id"] for row in k("cluster", "status", "--json").json()["brokers"]] == [1]
    assert "led by broker 1 already" in k("cluster", "move", topic, "0", "--to", "1").out
    assert "no broker 7 is there: 1" in k.refused("cluster", "move", topic, "0", "--to", "7")
    assert "there is no topic" in k.refused("cluster", "move", f"{topic}x", "0", "--to", "1")
    assert "no other broker is there" in k.refused("cluster", "drain", "1", code=1)
    assert "is not drained" in k.refused("cluster", "drain", "1", "--end")
