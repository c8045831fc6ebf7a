"""What goes wrong with registered schemas, in plain words."""

from __future__ import annotations


class RegistryError(ValueError):
    """A message not in the wire format, a schema that is not there or cannot be used, a registry that refuses."""
