"""CRC-32C of the package crc32c, whose compiled part is loaded by itself.

The package reads its own version and builds a command line when it is imported, a tenth of a broker's start.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias

Crc32c: TypeAlias = Callable[..., int]
"""crc32c(data, crc=0): of any buffer, going on from the checksum of what came before."""

NAME = "crc32c._crc32c"


def _load() -> Crc32c:
    package = find_spec("crc32c")
    found = PathFinder.find_spec(NAME, package.submodule_search_locations) if package is not None else None
    if found is None or found.loader is None:
        import crc32c as whole

        return whole.crc32c
    module = module_from_spec(found)
    found.loader.exec_module(module)
    function: Crc32c = module.crc32c
    return function


crc32c = _load()
