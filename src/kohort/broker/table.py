"""The one table of apis: which versions are served and by which function. ApiVersions is built from it.

A hot request costs one dict lookup: (api key, version) as one integer -> its compiled reader, handler and writer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.lazy_names import named
from kohort.protocol import messages

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core

Handler = Callable[["Core", "Call", Any, int], Any]
"""handler(core, call, request, now_ms) -> the response, or None where `core.reply(call, response)` gives it later.

A generator returns the response, and yields wherever others may have a turn before it goes on (`long_work.py`)."""


class Api(NamedTuple):
    """A row of the table. `name` is the message's without Request and Response.

    A handler that few brokers ever need is named, "module.function" of `broker/apis/`, and imported at its first
    request.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    handler: Handler | str

    def function(self) -> Handler:
        if not isinstance(self.handler, str):
            return self.handler
        module, _, name = self.handler.rpartition(".")
        found: Handler = named(f"kohort.broker.apis.{module}", name)
        return found


class Entry(NamedTuple):
    """What serving one version of one api takes."""

    read: Callable[[Any, int], tuple[Any, int]]
    handler: Handler
    write: Callable[[Any, Callable[[Any], None]], None]
    flexible: bool
    """Whether the request header ends in tagged fields."""
    flexible_response: bool
    bulk: bool
    """Whether answers hold large parts that are better not copied."""
    records: bool
    """Whether requests hold records: large, and read in no time."""
    name: str
    version: int


class ApiTable:
    def __init__(self, apis: list[Api]) -> None:
        self.apis: dict[int, Api] = {}
        self.entries: dict[int, Entry] = {}
        for api in apis:
            self.add(api)

    def add(self, api: Api) -> None:
        if api.key in self.apis:
            raise ValueError(f"{api.name} is registered twice")
        self.apis[api.key] = api

    def resolve(self, key: int, version: int) -> Entry | None:
        """The entry of a version, compiled at its first use; None where it is not served."""
        api = self.apis.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            return None
        request = getattr(messages, f"{api.name}Request")
        response = getattr(messages, f"{api.name}Response")
        entry = Entry(
            read=request.reader(version),
            handler=api.function(),
            write=response.writer(version),
            flexible=request.flexible(version),
            # Clients read the ApiVersions header before they know what the broker speaks (KIP-511).
            flexible_response=response.flexible(version) and api.name != "ApiVersions",
            bulk=api.name == "Fetch",
            records=api.name == "Produce",
            name=api.name,
            version=version,
        )
        self.entries[key << 16 | version] = entry
        return entry
