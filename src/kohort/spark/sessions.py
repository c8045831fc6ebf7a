"""A Spark session with the data source in it, and the one line that adds the source to any other session."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kohort.spark import interpreter, java
from kohort.spark.planning import CORES
from kohort.spark.source import KohortDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_DEFAULTS = {
    "spark.app.name": "kohort",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""What suits one machine. Unix sockets between the JVM and its Python workers carry 15-30 % more rows. Spark's default
way of writing a checkpoint starts several processes for every file on a local disk, some 70 ms a micro-batch; the other
one that it has writes and renames the same files."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Without them the JVM checks the bounds of every value it takes from Arrow, a sixth of its work on rows."""
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Where a Python that spark-submit has started finds the JVM that started it."""


def session(
    app_name: str | None = None, master: str | None = None, config: Mapping[str, object] | None = None
) -> SparkSession:
    """A Spark session that knows `format("kohort")`; `config` holds Spark's own settings.

    It runs on this machine, with all its cores unless `master` says otherwise. A program started by spark-submit runs
    where it was submitted to, with the settings of the submission.
    """
    from pyspark.sql import SparkSession

    settings = dict(config or {})
    if app_name is not None:
        settings["spark.app.name"] = app_name
    if master is not None or SUBMITTED not in os.environ:
        settings = _on_this_machine(master or "local[*]", settings)
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    spark = builder.getOrCreate()
    if not _installed():
        register(spark)
    return spark


def _on_this_machine(master: str, settings: Mapping[str, object]) -> dict[str, object]:
    """The environment made ready for Spark, and its settings."""
    java.prepare()
    os.environ[CORES] = str(local_cores(master) or "")
    interpreter.prepare(installed=_installed())
    java_options = f"{ARROW_OPTIONS} {settings.get(JAVA_OPTIONS, '')}".rstrip()
    return {**LOCAL_DEFAULTS, **settings, "spark.master": master, JAVA_OPTIONS: java_options}


def local_cores(master: str) -> int | None:
    """How many tasks run at a time: None where the tasks run on other machines."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master.replace(" ", ""))
    if found is None:
        return None
    count = found.group(1) or "1"
    return (os.cpu_count() or 1) if count == "*" else int(count)


def _installed() -> bool:
    """Where the package is installed, the workers' Python finds pyspark_kohort by itself."""
    try:
        importlib.metadata.distribution("kohort")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def register(spark: SparkSession) -> None:
    """Make `format("kohort")` known to a session. The workers' Python needs kohort installed, or in --py-files."""
    spark.dataSource.register(KohortDataSource)
