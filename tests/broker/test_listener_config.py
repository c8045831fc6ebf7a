"""listener.name.*: what a listener has of its own, and what it shares with the others."""

import pytest

import kohort
from doors import Visit, outcome
from kohort.broker.boot import make_config
from kohort.broker.certificates import TestAuthority
from kohort.broker.config import BrokerConfig, ConfigError
from kohort.broker.listener_config import ListenerConfig, Setting, parse_name
from wire import WireClient

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,ONE://127.0.0.1:0,TWO://127.0.0.1:0,INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "ONE:SSL,TWO:SSL,INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "offsets.topic.num.partitions": 2,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("listeners")
    ours, theirs = (TestAuthority(directory / name) for name in ("ours", "theirs") if not (directory / name).mkdir())
    config = LISTENERS | {
        "ssl.keystore.location": str(ours.sign("first", "localhost", "127.0.0.1")),
        "listener.name.two.ssl.keystore.location": str(theirs.sign("second", "localhost", "127.0.0.1")),
        "listener.name.two.ssl.truststore.location": str(ours.ca_file),
        "listener.name.two.ssl.client.auth": "required",
        "listener.name.two.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+).*$/$1/U,DEFAULT",
        "sasl.jaas.config": f'{PLAIN} user_alice="shared";',
        "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.outside.plain.sasl.jaas.config": f'{PLAIN} user_bob="own" user_alice="other";',
        "listener.name.outside.plain.connections.max.reauth.ms": "12345",
    }
    with kohort.Broker(config=config) as broker:
        ports = broker._call(lambda running: {one.name: one.port for one in running.listeners})
        yield broker, ports, ours, theirs


def test_each_listener_shows_a_certificate_of_its_own(site):
    _, ports, ours, theirs = site
    alice = ours.sign("alice")
    assert outcome(ports["ONE"], Visit("ONE", ours.ca_file)) == "in, met first"
    assert outcome(ports["TWO"], Visit("TWO", ours.ca_file, alice)) == "does not trust the broker"
    assert outcome(ports["TWO"], Visit("TWO", theirs.ca_file, alice)) == "in, met second"


def test_one_listener_asks_for_certificates_the_other_does_not(site):
    _, ports, _, theirs = site
    assert outcome(ports["TWO"], Visit("TWO", theirs.ca_file)) == "closed"
    assert outcome(ports["TWO"], Visit("TWO", theirs.ca_file, theirs.sign("alice"))) == "closed", "not signed by ours"


def test_names_in_certificates_are_read_by_the_rules_of_the_listener(site):
    broker, _, _, _ = site
    rules = broker._call(lambda running: running.server._mappings)
    assert (rules["TWO"].user("CN=alice"), rules["ONE"].user("CN=alice")) == ("ALICE", "CN=alice")


@pytest.mark.parametrize(
    ("visit", "said"),
    [
        (Visit("INSIDE", mechanism="PLAIN", password="shared"), "in"),
        (Visit("INSIDE", mechanism="PLAIN", password="other"), "SASL_AUTHENTICATION_FAILED"),
        (Visit("INSIDE", mechanism="SCRAM-SHA-256", password="shared"), "UNSUPPORTED_SASL_MECHANISM, ['PLAIN']"),
        (Visit("INSIDE", mechanism="PLAIN", user="bob", password="own"), "SASL_AUTHENTICATION_FAILED"),
        (Visit("OUTSIDE", mechanism="PLAIN", user="bob", password="own"), "in"),
        (Visit("OUTSIDE", mechanism="PLAIN", password="other"), "in"),
        (Visit("OUTSIDE", mechanism="PLAIN", password="shared"), "SASL_AUTHENTICATION_FAILED"),
        (Visit("OUTSIDE", mechanism="SCRAM-SHA-256", password="shared"), "in"),
        (Visit("OUTSIDE", mechanism="SCRAM-SHA-256", user="bob", password="own"), "SASL_AUTHENTICATION_FAILED"),
    ],
)
def test_users_and_mechanisms_of_a_listener(site, visit, said):
    _, ports, _, _ = site
    assert outcome(ports[visit.listener], visit) == said


def test_over_its_limit_a_listener_closes_and_others_do_not():
    config = LISTENERS | {
        "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"
    }
    with kohort.Broker(config=config | {"listener.name.one.max.connections": 2}) as broker:
        ports = broker._call(lambda running: {one.name: one.port for one in running.listeners})
        held = [WireClient(f"127.0.0.1:{ports[name]}") for name in ("ONE", "ONE", "TWO", "TWO", "TWO")]
        assert not any(one.closes_at_once() for one in held)
        assert WireClient(f"127.0.0.1:{ports['ONE']}").closed_by_peer()
        held[0].close()
        again = WireClient(f"127.0.0.1:{ports['ONE']}")
        assert not again.closes_at_once()
        for one in (*held, again):
            one.close()


def test_what_a_listener_has_not_is_that_of_the_broker():
    config = BrokerConfig(
        {"max.connections": 7, "connections.max.reauth.ms": 5, "listener.name.a.plain.connections.max.reauth.ms": 9}
    )
    one, other = ListenerConfig(config, "A"), ListenerConfig(config, "B")
    assert one["max.connections"] == other["max.connections"] == 7
    assert [one.max_session_ms(name) for name in ("PLAIN", "SCRAM-SHA-256")] == [9, 5]
    assert other.max_session_ms("PLAIN") == 5 and other.plain_users is None
    assert not config.enables("OAUTHBEARER")
    assert BrokerConfig({"listener.name.a.sasl.enabled.mechanisms": "OAUTHBEARER"}).enables("OAUTHBEARER")


def test_names_of_settings():
    assert parse_name("listener.name.outside.ssl.client.auth") == Setting("outside", "", "ssl.client.auth")
    found = parse_name("listener.name.OUTSIDE.scram-sha-512.sasl.jaas.config")
    assert found == Setting("outside", "scram-sha-512", "sasl.jaas.config")
    assert str(found) == "listener.name.outside.scram-sha-512.sasl.jaas.config"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("listener.name.outside.ssl.client.auht", "Did you mean ssl.client.auth"),
        ("listener.name.outside.num.partitions", "one for all listeners"),
        ("listener.name.outside.sasl.jaas.config", "listener.name.outside.plain.sasl.jaas.config"),
        ("listener.name.outside.plain.ssl.client.auth", "Unknown configuration"),
        ("listener.name.nowhere.ssl.client.auth", "not among listeners: OUTSIDE"),
        ("listener.name.", "Unknown configuration"),
    ],
)
def test_what_is_not_known_is_refused(name, said):
    config = {"listeners": "OUTSIDE://127.0.0.1:0", "listener.security.protocol.map": "OUTSIDE:SSL"}
    with pytest.raises(ConfigError, match=said):
        make_config(config | {name: "none"})


def test_a_wrong_value_is_refused_under_its_whole_name_and_a_secret_is_not_shown():
    with pytest.raises(ConfigError, match=r"yes for configuration listener\.name\.a\.ssl\.client\.auth"):
        BrokerConfig({"listener.name.a.ssl.client.auth": "yes"})
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({"listener.name.a.plain.sasl.jaas.config": 12345})
    assert "12345" not in str(refused.value)
