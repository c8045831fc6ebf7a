"""Spark looks for data sources in top-level packages called pyspark_*; this one shows it kohort's. No code here."""

from kohort.spark.source import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]
