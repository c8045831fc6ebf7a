"""Kafka Streams' jars from Maven, beside those of apache_kafka.py."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from apache_kafka import KAFKA_VERSION, Unavailable, cache_dir

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kohort</groupId><artifactId>kafka-streams</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId>
<version>{version}</version></dependency></dependencies></project>"""


def fetch_streams() -> Path:
    """The folder with its jars, fetched the first time."""
    home = cache_dir() / "kafka-streams" / KAFKA_VERSION
    lib, stamp = home / "lib", home / "fetched"
    if stamp.exists():
        return lib
    shutil.rmtree(lib, ignore_errors=True)
    home.mkdir(parents=True, exist_ok=True)
    (home / "pom.xml").write_text(POM.format(version=KAFKA_VERSION))
    command = ["mvn", "-B", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={lib}"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True)
    if done.returncode != 0 or not any(lib.glob("kafka-streams-*.jar")):
        raise Unavailable(
            f"Maven could not fetch Kafka Streams {KAFKA_VERSION}:\n{(done.stdout + done.stderr)[-3000:]}"
        )
    stamp.touch()
    return lib
