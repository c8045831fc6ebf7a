"""Spark's own Kafka connector, to compare with: its jars, with what they need."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

from apache_kafka import cache_dir

CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""No read path changed between 4.2 and the Spark it runs on."""


def connector_jars() -> list[Path]:
    """Fetched by Maven the first time, each without its dependencies: Spark has the rest."""
    folder = cache_dir() / "spark-connector"
    folder.mkdir(parents=True, exist_ok=True)
    jars = []
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for artifact in CONNECTOR:
            _, name, version = artifact.split(":")
            jar = folder / f"{name}-{version}.jar"
            if not jar.exists():
                where = (f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
                command = ["mvn", "-B", "-q", "dependency:copy", *where]
                subprocess.run(command, cwd=folder, check=True, capture_output=True)
            jars.append(jar)
    return jars
