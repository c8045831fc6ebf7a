"""What Prometheus sees of streaming queries, from the reports that Spark makes of them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from kohort.spark.metrics import PrometheusListener


def progress(lag: dict[str, int], rows: int = 0, **more: Any) -> Any:
    report = {"offsets": {}, "lag": {"orders": lag}, "totalLag": sum(lag.values()), "assignments": 2, **more}
    sources = [
        SimpleNamespace(numInputRows=rows, latestOffset=json.dumps(report)),
        SimpleNamespace(numInputRows=1, latestOffset='{"orders": {"0": 7}}'),
        SimpleNamespace(numInputRows=0, latestOffset=None),
    ]
    return SimpleNamespace(progress=SimpleNamespace(id="1", name="copy", sources=sources))


def test_lag_waiting_and_what_is_gone() -> None:
    registry = CollectorRegistry()
    listener = PrometheusListener(registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"query": "copy", **labels})

    listener.onQueryStarted(SimpleNamespace(id="1", name="copy"))
    listener.onQueryProgress(progress({"0": 20, "1": 3}, rows=9))
    assert value("kohort_spark_lag", topic="orders", partition="0") == 20 and value("kohort_spark_total_lag") == 23
    assert value("kohort_spark_rows_total") == 10 and value("kohort_spark_assignments") == 2
    assert value("kohort_spark_waiting") == 0
    listener.onQueryProgress(progress({"1": 4}, waiting="no broker"))
    assert value("kohort_spark_lag", topic="orders", partition="0") is None
    assert value("kohort_spark_lag", topic="orders", partition="1") == 4 and value("kohort_spark_waiting") == 1
    listener.onQueryIdle(SimpleNamespace(id="1"))
    listener.onQueryTerminated(SimpleNamespace(id="1"))
    assert value("kohort_spark_total_lag") is None
    assert value("kohort_spark_lag", topic="orders", partition="1") is None
