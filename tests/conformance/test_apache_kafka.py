"""The real broker that the other conformance tests compare with: it starts, keeps its data, and ends when told to."""

from apache_kafka import ApacheKafka, run_java


def topics(kafka: ApacheKafka, *args: str) -> list[str]:
    done = run_java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap_servers, *args)
    return done.stdout.split("\n")


def test_topics_survive_a_stop_and_a_start(jdk: None) -> None:
    with ApacheKafka() as kafka:
        topics(kafka, "--create", "--topic", "kept")
        pid = kafka.pid
        kafka.stop()
        assert not kafka.running
        kafka.start()
        assert kafka.pid != pid
        assert "kept" in topics(kafka, "--list")
    assert not kafka.running
    assert not kafka.home.exists()
