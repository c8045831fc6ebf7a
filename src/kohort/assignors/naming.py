"""What `package.module:Class` names, for assignors of either side. Which ones there are is loading.py's business."""

from __future__ import annotations

from importlib import import_module


class AssignorConfigError(ValueError):
    """A configured assignor that cannot be used; the message says what to write instead."""


def find_object(name: str, instead: str) -> object:
    """What `package.module:Class` names; `instead` is what else could have been written."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise AssignorConfigError(f"unknown assignor {name!r}: use {instead}")
    try:
        found: object = import_module(module_name)
    except ImportError as e:
        raise AssignorConfigError(f"assignor {name!r}: cannot import {module_name!r}: {e}") from e
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise AssignorConfigError(f"assignor {name!r}: {module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    return found
