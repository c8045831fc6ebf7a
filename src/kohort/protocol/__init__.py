"""Kafka's wire protocol: message definitions, a codec compiled per (message, version), framing, error codes.

Pure: bytes in, values out. No sockets, no clock.
"""
