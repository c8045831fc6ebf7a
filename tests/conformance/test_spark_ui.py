"""The example with Spark's UI and Prometheus, on a real Apache Kafka: what an operator sees of a query."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

from apache_kafka import ApacheKafka
from broker_process import free_ports
from spark.query import create, numbers, produce, unique
from spark.streams import patiently

EXAMPLE = Path(__file__).parents[2] / "examples" / "watch_a_query.py"


def page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return str(response.read().decode())
    except OSError:
        return ""


def test_sparks_ui_and_prometheus_show_a_query(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    servers, topic = apache_kafka.bootstrap_servers, unique("orders")
    create(servers, topic)
    metrics, ui = free_ports(2)
    command = [sys.executable, str(EXAMPLE), "--bootstrap-servers", servers, "--topic", topic, "--group", unique()]
    command += ["--metrics-port", str(metrics), "--ui-port", str(ui)]
    with open(tmp_path / "log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            shown, counted = f"http://127.0.0.1:{ui}/StreamingQuery/", f"http://127.0.0.1:{metrics}/metrics"
            patiently(lambda: 'kohort_spark_total_lag{query="watched"} 0.0' in page(counted), "the lag is exported")
            produce(servers, topic, numbers(0, 40))
            patiently(lambda: 'kohort_spark_rows_total{query="watched"} 40.0' in page(counted), "and the rows")
            assert 'kohort_spark_waiting{query="watched"} 0.0' in page(counted)
            assert "watched" in page(shown) and "Streaming Query" in page(shown)
        finally:
            process.terminate()
