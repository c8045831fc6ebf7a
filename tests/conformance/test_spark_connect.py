"""The source and the sink on Spark Connect, reading a real Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from apache_kafka import ApacheKafka
from spark import connect_job
from spark.query import committed, create, members, numbers, produce, unique


def test_a_program_on_spark_connect(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect's client needs: pip install 'pyspark[connect]'")
    servers, group, topic, target = apache_kafka.bootstrap_servers, unique(), unique("orders"), unique("copies")
    create(servers, topic)
    create(servers, target)
    produce(servers, topic, numbers(0, 400))
    command = [sys.executable, connect_job.__file__, servers, group, topic, target, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stderr[-3000:]
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["session"].startswith("pyspark.sql.connect") and told["ended"]
    assert told["values"] == list(range(400))
    assert "did you mean startingOffsets" in told["said"]
    assert committed(servers, group, topic) == {0: 100, 1: 100, 2: 100, 3: 100}
    assert members(servers, group) == 0
