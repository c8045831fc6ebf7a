"""Every message of the protocol as a class, built from its definition when it is first asked for.

    from kohort.protocol.messages import JoinGroupRequest
    request = JoinGroupRequest(group_id="g")
    JoinGroupRequest.decode(request.encode(9), 9) == request

A class holds the fields of all versions; its reader and writer for one version are compiled at first use (1-4 ms each).
Of a message that is only named, as most are in a process, nothing but its own fields is known: its schema and the
structs within it are made when one of them is first asked for.
"""

import struct as _struct
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from kohort.protocol import codegen, schema, wire
from kohort.protocol.wire import DecodeError, EncodeError, UnsupportedFieldError

MAX_ELEMENTS = 250_000
"""The most elements that a request may have in an array and those within it together: more names or partitions than
any cluster has. Answers are as long as they are."""
MOST_ELEMENTS = {
    "ProduceRequest": 20_000,
    "AlterUserScramCredentialsRequest": 20_000,
    "DescribeUserScramCredentialsRequest": 20_000,
    "JoinGroupRequest": 20_000,
    "UpdateFeaturesRequest": 20_000,
}
"""Fewer, where the request is handled at once. More than a producer can put into a megabyte."""
MAX_TAGS = 16
"""The most tagged fields of one struct of a request."""
_UNSET: Any = type("UNSET", (), {"__repr__": lambda self: "..."})()


class Struct:
    """Base of every generated class: plain slots, equality and a repr that leaves out defaults."""

    __slots__ = ("unknown_tags",)

    unknown_tags: dict[int, bytes] | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__) and (
            (self.unknown_tags or {}) == (other.unknown_tags or {})
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        blank = type(self)()
        shown = (f"{n}={getattr(self, n)!r}" for n in self.__slots__ if getattr(self, n) != getattr(blank, n))
        return f"{type(self).__name__}({', '.join(shown)})"


class _Unfolding(type):
    """The class of messages: what is not there yet is made when it is asked for."""

    def __getattr__(cls, name: str) -> Any:
        if "SCHEMA" in cls.__dict__ or cls.__name__ == "Message":
            raise AttributeError(f"{cls.__name__!r} has no attribute {name!r}")
        _unfold(cls)
        return getattr(cls, name)


class Message(Struct, metaclass=_Unfolding):
    """A struct that stands on its own: knows its schema, its api key and how to become bytes."""

    __slots__ = ()

    SCHEMA: schema.MessageDefinition
    API_KEY: int | None
    MIN_VERSION: int
    MAX_VERSION: int
    _readers: dict[int, Any]
    _writers: dict[int, Any]
    _row_writers: dict[tuple[str, int], Any]
    _scope: dict[str, Any]

    @classmethod
    def flexible(cls, version: int) -> bool:
        return version in cls.SCHEMA.flexible

    @classmethod
    def reader(cls, version: int) -> Any:
        """The compiled `read(buf, pos) -> (message, end)` of a version, without the guards of `decode_from`."""
        return cls._readers.get(version) or _compile(cls, version)[0]

    @classmethod
    def writer(cls, version: int) -> Any:
        """The compiled `write(message, put)` of a version, without the guards of `encode_parts`."""
        return cls._writers.get(version) or _compile(cls, version)[1]

    @classmethod
    def rows(cls, name: str, version: int) -> wire.Encoded:
        """An array of the struct `name` that is written as it grows; it stands where a list of them would."""
        cls.writer(version)
        return wire.Encoded(cls._row_writers[name, version])

    @classmethod
    def decode_from(cls, buf: bytes | memoryview, version: int, pos: int = 0) -> tuple[Any, int]:
        """The message at `pos` and the position after it; DecodeError whatever is wrong with the bytes."""
        try:
            message, end = (cls._readers.get(version) or _compile(cls, version)[0])(buf, pos)
        except (_struct.error, IndexError, UnicodeDecodeError, DecodeError) as error:
            raise DecodeError(f"{cls.__name__} v{version}: {error}") from None
        if end > len(buf):
            raise DecodeError(f"{cls.__name__} v{version}: {end - len(buf)} bytes short")
        return message, end

    @classmethod
    def decode(cls, buf: bytes | memoryview, version: int, pos: int = 0) -> Any:
        return cls.decode_from(buf, version, pos)[0]

    def encode_parts(self, version: int) -> list[Any]:
        """The body as chunks, `records` fields uncopied; EncodeError where the version cannot carry it."""
        parts: list[Any] = []
        try:
            (self._writers.get(version) or _compile(type(self), version)[1])(self, parts.append)
        except UnsupportedFieldError:
            raise
        except (_struct.error, AttributeError, TypeError, EncodeError) as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from error
        return parts

    def encode(self, version: int) -> bytes:
        return b"".join(self.encode_parts(version))


_Base = TypeVar("_Base", bound=Struct)
_Init = Callable[[], Any]


def _make_class(name: str, fields: tuple[str, ...], base: type[_Base], qualname: str, init: _Init) -> type[_Base]:
    """A slots class with a keyword-only __init__ that knows the defaults; it is compiled when it is first called, since
    a process makes far fewer messages than it knows."""

    def first(self: Any, **given: Any) -> None:
        made.__init__ = init()  # type: ignore[method-assign]
        made.__init__(self, **given)

    members = {"__slots__": fields, "__init__": first, "__module__": __name__, "__qualname__": qualname}
    kind: Any = type(base)  # Struct's is type, and Message's unfolds
    made = cast(type[_Base], kind(name, (base,), members))
    return made


def _init(struct: schema.StructDefinition, scope: dict[str, Any]) -> Any:
    parameters, body = [], []
    for field in struct.fields:
        if field.is_array or field.struct is not None:
            mutable = codegen.default_expression(field) != "None"
            parameters.append(f"{field.name}={'UNSET' if mutable else 'None'}")
            fresh = codegen.default_expression(field)
            body.append(f"    self.{field.name} = {fresh} if {field.name} is UNSET else {field.name}")
        else:
            parameters.append(f"{field.name}={codegen.default_expression(field)}")
            body.append(f"    self.{field.name} = {field.name}")
    arguments = f", *, {', '.join(parameters)}" if parameters else ""
    text = (
        f"def __init__(self{arguments}, unknown_tags=None):\n"
        if parameters
        else "def __init__(self, *, unknown_tags=None):\n"
    )
    text += "\n".join([*body, "    self.unknown_tags = unknown_tags"])
    namespace: dict[str, Any] = {}
    scope["UNSET"] = _UNSET
    exec(text, scope, namespace)
    return namespace["__init__"]


def _make_message(name: str) -> type[Message]:
    return _make_class(name, schema.field_names(name), Message, name, lambda: _init(*_unfold(globals()[name])))


_UNFOLDED: dict[str, dict[str, Any]] = {}


def _unfold(message: Any) -> tuple[schema.StructDefinition, dict[str, Any]]:
    """Its structs, its schema and places for what will be compiled. Two threads may come here at once: what the first
    has made is what both take."""
    definition = schema.message(message.__name__)
    scope: dict[str, Any] = {definition.name: message}
    for struct in definition.structs.values():
        names, place = tuple(field.name for field in struct.fields), f"{definition.name}.{struct.name}"
        scope[struct.name] = _make_class(struct.name, names, Struct, place, partial(_init, struct, scope))
    made = {name: scope[name] for name in definition.structs} | {
        "_scope": scope, "_readers": {}, "_writers": {}, "_row_writers": {}, "API_KEY": definition.api_key,
        "MIN_VERSION": definition.valid.low, "MAX_VERSION": definition.valid.high, "SCHEMA": definition,
    }  # fmt: skip
    made = _UNFOLDED.setdefault(definition.name, made)
    for name, value in made.items():
        setattr(message, name, value)
    return definition.root, made["_scope"]


def _compile(message: type[Message], version: int) -> tuple[Any, Any]:
    definition = message.SCHEMA
    if version not in definition.valid:
        raise EncodeError(f"{definition.name} has no version {version}: {message.MIN_VERSION} to {message.MAX_VERSION}")
    is_request = definition.name.endswith("Request")
    scope: dict[str, Any] = {
        "new": object.__new__,
        "MAX_ELEMENTS": MOST_ELEMENTS.get(definition.name, MAX_ELEMENTS) if is_request else 2**31,
        "MAX_TAGS": MAX_TAGS,
        "unpack_from": _struct.unpack_from,
        "pack": _struct.pack,
        **{name: value for name, value in vars(wire).items() if not name.startswith("__")},
    }
    flexible = version in definition.flexible
    for struct in (*definition.structs.values(), definition.root):
        scope[struct.name] = message if struct is definition.root else getattr(message, struct.name)
        reading = codegen.reader_source(struct, version, flexible, bounded=is_request)
        for text, constants in (reading, codegen.writer_source(struct, version, flexible)):
            scope.update(constants)
            exec(compile(text, f"<{definition.name} v{version} {struct.name}>", "exec"), scope)
    for struct in definition.structs.values():
        message._row_writers[struct.name, version] = scope[f"write_{struct.name}"]
    reader, writer = scope[f"read_{definition.root.name}"], scope[f"write_{definition.root.name}"]
    message._readers[version], message._writers[version] = reader, writer
    return reader, writer


def __getattr__(name: str) -> Any:
    try:
        message = _make_message(name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no message {name!r}") from None
    return globals().setdefault(name, message)


def __dir__() -> list[str]:
    return sorted({*globals(), *schema.message_names()})
