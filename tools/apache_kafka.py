"""A real Apache Kafka for conformance tests and benchmarks: jars from Maven, one KRaft node on loopback.

Nothing here knows kohort, and nothing under src/ may import this file.
`python tools/apache_kafka.py [key=value ...]` runs one broker until Ctrl-C.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from broker_process import BrokerProcess, ask, free_ports

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
)

TEST_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Starts quickly and stays small: for tests."""

PRODUCTION_JVM = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""What Kafka's own start script passes: for measurements."""

SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "group.initial.rebalance.delay.ms": "0",
}

LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR">
  <Appenders>
    <Console name="out" target="SYSTEM_ERR"><PatternLayout pattern="[%d] %p %m (%c{1})%n"/></Console>
  </Appenders>
  <Loggers><Root level="${sys:kafka.log.level:-WARN}"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


class Unavailable(RuntimeError):
    """Apache Kafka cannot be fetched or run here; the text says what is missing."""


def cache_dir() -> Path:
    return Path(os.environ.get("KOHORT_CACHE") or Path(__file__).resolve().parent.parent / ".cache")


def _program(name: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    return shutil.which(name)


def available() -> tuple[bool, str]:
    """Whether a real Kafka can be run here, and if not, why."""
    missing = [name for name in ("java", "javac") if _program(name) is None]
    if missing:
        return False, f"{' and '.join(missing)} not found: install a JDK, version 17 or later"
    if shutil.which("mvn") is None and not _fetched().exists():
        return False, "mvn not found: install Maven, which fetches Apache Kafka's jars"
    return True, ""


# -- jars ----------------------------------------------------------------------------------------------------------


def _home() -> Path:
    return cache_dir() / "apache-kafka" / KAFKA_VERSION


def _fetched() -> Path:
    return _home() / "fetched"


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kohort</groupId><artifactId>apache-kafka</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch_jars() -> Path:
    """The folder with Kafka's jars, fetched by Maven the first time."""
    home = _home()
    lib = home / "lib"
    with _locked(home / "lock"):
        if _fetched().exists():
            return lib
        ok, reason = available()
        if not ok:
            raise Unavailable(reason)
        shutil.rmtree(lib, ignore_errors=True)
        (home / "pom.xml").write_text(_pom())
        command = [
            "mvn",
            "-B",
            "-q",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={lib}",
            "-DincludeScope=runtime",
        ]
        done = subprocess.run(command, cwd=home, capture_output=True, text=True)
        if done.returncode != 0 or not any(lib.glob("kafka_2.13-*.jar")):
            raise Unavailable(
                f"Maven could not fetch Apache Kafka {KAFKA_VERSION}:\n{(done.stdout + done.stderr)[-3000:]}"
            )
        (home / "log4j2.xml").write_text(LOG4J)
        _fetched().touch()
        return lib


def class_path(*more: Path | str) -> str:
    return os.pathsep.join([*map(str, more), f"{fetch_jars()}/*"])


def compile_java(source_dir: Path | str, out: Path | str | None = None, more_jars: Sequence[Path | str] = ()) -> Path:
    """Compile every .java file of a folder against Kafka's jars, and more; an unchanged folder is compiled once."""
    sources = sorted(Path(source_dir).rglob("*.java"))
    if not sources:
        raise FileNotFoundError(f"no .java files under {source_dir}")
    digest = hashlib.sha256(KAFKA_VERSION.encode())
    for source in sources:
        digest.update(source.read_bytes())
    target = Path(out) if out else cache_dir() / "java-classes" / digest.hexdigest()[:16]
    stamp = target / "compiled"
    with _locked(target.parent / f".{target.name}.lock"):
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return target
        target.mkdir(parents=True, exist_ok=True)
        command = [
            _program("javac") or "javac",
            "-nowarn",
            "-cp",
            class_path(*more_jars),
            "-d",
            str(target),
            *map(str, sources),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"javac failed:\n{done.stdout}{done.stderr}")
        stamp.write_text(digest.hexdigest())
    return target


def java_command(
    main: str, *args: str, extra_class_path: Sequence[Path | str] = (), jvm: Sequence[str] = TEST_JVM
) -> list[str]:
    """The command line that runs one of Kafka's (or our harness's) main classes."""
    logging = f"-Dlog4j2.configurationFile={_home() / 'log4j2.xml'}"
    return [_program("java") or "java", *jvm, logging, "-cp", class_path(*extra_class_path), main, *args]


def run_java(
    main: str,
    *args: str,
    input: str | bytes | None = None,
    timeout: float = 120,
    extra_class_path: Sequence[Path | str] = (),
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a main class to its end; its output is text. A failure raises with what it printed."""
    data = input.encode() if isinstance(input, str) else input
    command = java_command(main, *args, extra_class_path=extra_class_path)
    done = subprocess.run(command, input=data if data is not None else b"", capture_output=True, timeout=timeout)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if check and done.returncode != 0:
        raise RuntimeError(f"{main} ended with {done.returncode}:\n{out[-3000:]}{err[-3000:]}")
    return subprocess.CompletedProcess([main, *args], done.returncode, out, err)


# -- the broker ----------------------------------------------------------------------------------------------------


def random_id() -> str:
    """As Kafka makes them: none begins with a dash, which its tools would take for an option."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


class ApacheKafka(BrokerProcess):
    """One combined broker and controller."""

    name = "Apache Kafka"
    start_timeout = 120

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        data_dir: Path | str | None = None,
        jvm: Sequence[str] = TEST_JVM,
        log_level: str = "INFO",
    ) -> None:
        super().__init__(config, data_dir=data_dir, log_level=log_level)
        self.port, self.controller_port = free_ports(2)  # taken together, so that they differ
        self.cluster_id = random_id()
        self._jvm = tuple(jvm)

    @property
    def class_path(self) -> str:
        return class_path()

    def _command(self) -> list[str]:
        """Fetches the jars and formats the data directory where needed."""
        fetch_jars()
        properties = self._write_properties()
        if not (self.data_dir / "meta.properties").exists():
            run_java("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(properties))
        return java_command("kafka.Kafka", str(properties), jvm=(*self._jvm, f"-Dkafka.log.level={self.log_level}"))

    @staticmethod
    def _usable(port: int) -> bool:
        """A KRaft broker answers ApiVersions a moment before it is unfenced; Metadata v1 names it once it is usable."""
        try:
            return struct.unpack_from(">i", ask(port, 3, 1, struct.pack(">i", 0)))[0] > 0
        except OSError:
            return False

    def _write_properties(self) -> Path:
        listener, controller = f"PLAINTEXT://127.0.0.1:{self.port}", f"CONTROLLER://127.0.0.1:{self.controller_port}"
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener},{controller}",
            "advertised.listeners": listener,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            **SINGLE_NODE,
            **self.config,
        }
        path = self.home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


class ApacheKafkaCluster:
    """Several combined brokers and controllers, of which each is in a rack of its own: rack-1, rack-2, ...

    A context manager. `nodes[0]` has node id 1. Consumers may read from followers (KIP-392).
    """

    def __init__(self, size: int = 3, config: Mapping[str, object] | None = None) -> None:
        self.nodes = [ApacheKafka(config) for _ in range(size)]
        voters = ",".join(f"{number}@127.0.0.1:{node.controller_port}" for number, node in enumerate(self.nodes, 1))
        for number, node in enumerate(self.nodes, 1):
            node.cluster_id = self.nodes[0].cluster_id
            node.config = {
                "node.id": number,
                "broker.rack": f"rack-{number}",
                "controller.quorum.voters": voters,
                "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
                "offsets.topic.replication.factor": size,
                **node.config,
            }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def __enter__(self) -> Self:
        """All at once: none can be used before most of them run."""
        with ThreadPoolExecutor() as threads:
            started = [threads.submit(node.start) for node in self.nodes]
        try:
            for one in started:
                one.result()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes:
            node.close()


def main() -> int:
    ok, reason = available()
    if not ok:
        print(reason, file=sys.stderr)
        return 2
    overrides = dict(argument.split("=", 1) for argument in sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ApacheKafka(overrides) as kafka:
        print(
            f"Apache Kafka {KAFKA_VERSION} listening on {kafka.bootstrap_servers} (pid {kafka.pid}), Ctrl-C stops it",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
