"""Progress of streaming queries for Prometheus: lag, assignments, standstill. Made of Spark's progress reports alone.

spark.streams.addListener(kohort.spark.metrics.PrometheusListener())
prometheus_client.start_http_server(9400)
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class PrometheusListener(StreamingQueryListener):
    """In the program that starts the queries. A query is named by its name, or its id where it has none."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import REGISTRY, Counter, Gauge

        place = REGISTRY if registry is None else registry
        one, each = ["query"], ["query", "topic", "partition"]
        self._lag = Gauge("kohort_spark_lag", "Records behind the end of the log.", each, registry=place)
        self._total = Gauge("kohort_spark_total_lag", "The same over all partitions.", one, registry=place)
        self._assignments = Gauge(
            "kohort_spark_assignments", "Assignments by the group in this run of the query.", one, registry=place
        )
        self._waiting = Gauge(
            "kohort_spark_waiting",
            "1 while nothing can be read: log and progress say why.",
            one,
            registry=place,
        )
        self._seen = Gauge(
            "kohort_spark_last_progress_seconds", "When the query last reported, in s since 1970.", one, registry=place
        )
        self._rows = Counter("kohort_spark_rows", "Rows read.", one, registry=place)
        self._partitions: dict[str, set[tuple[str, str]]] = {}
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        name = progress.name or str(progress.id)
        self._names[str(progress.id)] = name
        self._seen.labels(name).set(time.time())
        for source in progress.sources:
            self._rows.labels(name).inc(source.numInputRows)
            report = _report(source.latestOffset)
            if report is not None:
                self._show(name, report)

    def onQueryIdle(self, event: Any) -> None:
        self._seen.labels(self._names.get(str(event.id), str(event.id))).set(time.time())

    def onQueryTerminated(self, event: Any) -> None:
        """Its lag is not known any more, which is not the same as none."""
        name = self._names.pop(str(event.id), str(event.id))
        self._forget(name, self._partitions.pop(name, set()))
        for gauge in (self._total, self._assignments, self._waiting, self._seen):
            gauge.remove_by_labels({"query": name})

    def _show(self, name: str, report: dict[str, Any]) -> None:
        self._total.labels(name).set(report["totalLag"])
        self._assignments.labels(name).set(report.get("assignments", 0))
        self._waiting.labels(name).set(1 if "waiting" in report else 0)
        lag = {(topic, number): count for topic, parts in report["lag"].items() for number, count in parts.items()}
        self._forget(name, self._partitions.get(name, set()) - lag.keys())
        self._partitions[name] = set(lag)
        for (topic, number), count in lag.items():
            self._lag.labels(name, topic, number).set(count)

    def _forget(self, name: str, partitions: set[tuple[str, str]]) -> None:
        for topic, number in partitions:
            self._lag.remove(name, topic, number)


def _report(text: str | None) -> dict[str, Any] | None:
    """Of this source; other sources of a query report in their own way."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return None
    return value if isinstance(value, dict) and {"lag", "totalLag"} <= value.keys() else None
