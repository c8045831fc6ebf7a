"""A streaming query as its operators see it: Spark's UI, and lag, rebalances and standstill for Prometheus.

    python examples/watch_a_query.py --bootstrap-servers localhost:9092 --topic orders

Open http://localhost:4040/StreamingQuery/ and http://localhost:9400/metrics while it runs; Ctrl-C ends it.
Needs: pip install "kohort[spark,metrics]"
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time

import prometheus_client

import kohort.spark
from kohort.spark.metrics import PrometheusListener


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="watched")
    parser.add_argument("--metrics-port", type=int, default=9400)
    parser.add_argument("--ui-port", type=int, default=4040)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    options = parser.parse_args()
    config = {"spark.ui.enabled": "true", "spark.ui.port": options.ui_port, "spark.log.level": "ERROR"}
    spark = kohort.spark.session("watched", config=config)
    spark.streams.addListener(PrometheusListener())
    prometheus_client.start_http_server(options.metrics_port, addr="127.0.0.1")
    reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", options.bootstrap_servers)
    frame = reader.options(**{"group.id": options.group, "subscribe": options.topic}).load()
    writer = frame.writeStream.queryName("watched").format("noop")
    query = writer.option("checkpointLocation", tempfile.mkdtemp(prefix="watched-")).start()
    print(f"Spark's UI: {spark.sparkContext.uiWebUrl}/StreamingQuery/", flush=True)
    print(f"Prometheus: http://127.0.0.1:{options.metrics_port}/metrics", flush=True)
    end = time.monotonic() + options.seconds
    try:
        while query.isActive and time.monotonic() < end:
            time.sleep(1)
            if query.lastProgress is not None:
                report = json.loads(query.lastProgress["sources"][0]["latestOffset"] or "{}")
                print("lag", report.get("totalLag"), report.get("waiting", ""), flush=True)
    except KeyboardInterrupt:
        pass
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
