"""Confluent's schema registry: its wire format, a cached client of its REST API, Avro, Protobuf and JSON Schema.

No Spark in here (kohort.spark.from_registry stands on this), and nothing of groups or brokers.
"""

from kohort.registry.client import Registry, Schema
from kohort.registry.codecs import decoder, encoder
from kohort.registry.errors import RegistryError

__all__ = ["Registry", "RegistryError", "Schema", "decoder", "encoder"]
