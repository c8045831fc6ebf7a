"""The security settings that people bring along from Java's clients."""

from __future__ import annotations

import pytest

from kohort.client.producer_config import ProducerConfig
from kohort.spark.java_settings import MSK_PROVIDER, from_java
from kohort.spark.options import OptionError, parse_read_options, parse_write_options

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="se\\"cret;";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required\n  username='bob'\n  password=pw ;"
OAUTH = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="me" clientSecret="s" scope="kafka";'
)
IAM = "software.amazon.msk.auth.iam.IAMLoginModule required;"
ID = "sasl.oauthbearer.client.credentials.client.id"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (
            {"sasl.jaas.config": PLAIN},
            {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": 'se"cret;'},
        ),
        (
            {"sasl.jaas.config": SCRAM, "sasl.mechanism": "SCRAM-SHA-512"},
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "bob", "sasl.password": "pw"},
        ),
        (
            {"sasl.jaas.config": OAUTH, "sasl.login.callback.handler.class": "org.apache.kafka.X"},
            {
                "sasl.mechanism": "OAUTHBEARER", ID: "me", "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.client.credentials.client.secret": "s",
            },
        ),
        (
            {"sasl.jaas.config": IAM, "sasl.mechanism": "AWS_MSK_IAM"},
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": MSK_PROVIDER},
        ),
        ({"ssl.protocol": "TLSv1.3", "ssl.cafile": "ca"}, {"ssl.cafile": "ca"}),
    ],
)  # fmt: skip
def test_jaas_lines(given: dict[str, str], meant: dict[str, str]) -> None:
    assert from_java(given) == meant


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kafka.sasl.jaas.config": "nonsense"}, "must read: <login module> required"),
        ({"kafka.sasl.jaas.config": SCRAM}, "set kafka.sasl.mechanism to SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({"kafka.sasl.jaas.config": "a.PlainLoginModule required;"}, "no username or no password"),
        ({"kafka.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "Kerberos"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "Kerberos"),
        ({"kafka.sasl.kerberos.service.name": "kafka"}, "Kerberos"),
        ({"kafka.sasl.jaas.config": "a.OtherLoginModule required;"}, "what is known are those for"),
    ],
)
def test_what_is_not_understood_is_an_option_error(given: dict[str, str], says: str) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given}
    with pytest.raises(OptionError, match=says):
        parse_read_options(options, "batch")


def test_the_settings_of_a_java_job_as_they_are() -> None:
    options = parse_read_options(
        {
            "kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": PLAIN,
            "kafka.ssl.truststore.location": "/t.p12", "kafka.ssl.truststore.password": "x",
            "kafka.ssl.endpoint.identification.algorithm": "",
        },
        "batch",
    )  # fmt: skip
    assert options.config()["sasl.username"] == "alice"
    assert options.config()["ssl.truststore.location"] == "/t.p12"


def test_a_producer_takes_them_too() -> None:
    given = {
        "kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": OAUTH, "kafka.sasl.oauthbearer.token.endpoint.url": "https://h/token",
    }  # fmt: skip
    config = ProducerConfig(parse_write_options(given).producer)
    assert config["sasl.mechanism"] == "OAUTHBEARER"
    assert config["sasl.oauthbearer.client.credentials.client.id"] == "me"
    assert config["sasl.oauthbearer.scope"] == "kafka"
