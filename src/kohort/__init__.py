"""Kafka's consumer-group coordination for Python and Spark."""
