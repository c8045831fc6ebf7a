"""A client of the registry's REST API. What has an id never changes, so it is asked for once a process."""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from kohort.registry.errors import RegistryError

SECONDS = 30
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class Reference:
    """Another subject's schema that one imports under `name`."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """`kind` is AVRO, PROTOBUF or JSON; `id` is 0 before it is registered."""

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()
    id: int = 0


class Registry:
    """`url` of one registry, several with commas between them; `auth` is "user:password", `token` a bearer token."""

    def __init__(self, url: str, auth: str | None = None, token: str | None = None) -> None:
        self._urls = [part.strip().rstrip("/") for part in url.split(",") if part.strip()]
        if not self._urls:
            raise RegistryError("the registry has no url")
        self._headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
        if auth is not None:
            self._headers["Authorization"] = "Basic " + base64.b64encode(auth.encode()).decode()
        elif token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._by_id: dict[int, Schema] = {}
        self._versions: dict[tuple[str, int], Schema] = {}
        self._descriptors: dict[int, bytes | None] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registry) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())

    def __reduce__(self) -> tuple[Any, ...]:
        authorization = self._headers.get("Authorization")
        return _again, (",".join(self._urls), authorization)

    def schema(self, schema_id: int) -> Schema:
        with self._lock:
            if schema_id not in self._by_id:
                self._by_id[schema_id] = _schema(self._get(f"/schemas/ids/{schema_id}"), schema_id)
            return self._by_id[schema_id]

    def latest(self, subject: str) -> Schema:
        """The newest version of a subject: asked for each time."""
        found = self._get(f"/subjects/{_quoted(subject)}/versions/latest")
        return _schema(found, int(found["id"]))

    def version(self, subject: str, version: int) -> Schema:
        with self._lock:
            if (subject, version) not in self._versions:
                found = self._get(f"/subjects/{_quoted(subject)}/versions/{version}")
                self._versions[subject, version] = _schema(found, int(found["id"]))
            return self._versions[subject, version]

    def register(self, subject: str, schema: Schema) -> Schema:
        """The same schema with its id; a registry that has it already gives the one it has."""
        body: dict[str, Any] = {"schema": schema.text}
        if schema.kind != "AVRO":
            body["schemaType"] = schema.kind
        if schema.references:
            body["references"] = [
                {"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references
            ]
        found = self._ask(f"/subjects/{_quoted(subject)}/versions", body)
        return Schema(schema.text, schema.kind, schema.references, int(found["id"]))

    def descriptor(self, schema_id: int) -> bytes | None:
        """Protobuf: the schema's FileDescriptorProto, which the registry has compiled; None where it gives text."""
        with self._lock:
            if schema_id not in self._descriptors:
                found = self._get(f"/schemas/ids/{schema_id}?format=serialized")
                try:
                    self._descriptors[schema_id] = base64.b64decode(found["schema"], validate=True)
                except ValueError:
                    self._descriptors[schema_id] = None
            return self._descriptors[schema_id]

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    def _get(self, path: str) -> Any:
        return self._ask(path, None)

    def _ask(self, path: str, body: dict[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        trouble = ""
        for url in self._urls:
            request = urllib.request.Request(url + path, data, self._headers)
            try:
                with urllib.request.urlopen(request, timeout=SECONDS) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                said = error.read(2000).decode(errors="replace")
                if error.code < 500:
                    raise RegistryError(f"{url}{path}: HTTP {error.code} {said}") from None
                trouble = f"{url}{path}: HTTP {error.code} {said}"
            except (OSError, ValueError) as error:
                trouble = f"{url}{path}: {error}"
        raise RegistryError(trouble)


def _again(url: str, authorization: str | None) -> Registry:
    registry = Registry(url)
    if authorization is not None:
        registry._headers["Authorization"] = authorization
    return registry


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _schema(found: Any, schema_id: int) -> Schema:
    references = tuple(
        Reference(one["name"], one["subject"], int(one["version"])) for one in found.get("references") or ()
    )
    return Schema(found["schema"], found.get("schemaType", "AVRO"), references, schema_id)
