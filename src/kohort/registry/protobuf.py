"""Protobuf messages by descriptors, which the registry has compiled, or else compiler.py. No classes are generated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.registry import wire
from kohort.registry.compiler import compile_text
from kohort.registry.errors import RegistryError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

    from kohort.registry.client import Registry, Schema


class Messages:
    """The messages of one schema."""

    def __init__(self, registry: Registry, schema: Schema) -> None:
        self._file = _file(registry, schema)

    def descriptor(self, indexes: tuple[int, ...] = (0,)) -> Descriptor:
        try:
            found = list(self._file.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                # The entries of maps are messages only to the compiler; Java's serializer does not count them.
                found = [one for one in found.nested_types if not one.GetOptions().map_entry][index]
        except IndexError:
            raise RegistryError(f"the schema has no message {list(indexes)}") from None
        return found

    def read(self, payload: bytes) -> Any:
        from google.protobuf.message import DecodeError

        indexes, data = wire.unpack_indexes(payload)
        try:
            return _value(self._class(indexes).FromString(data))
        except DecodeError as error:
            raise RegistryError(f"a message cannot be read by its schema: {error}") from None

    def write(self, value: Any) -> bytes:
        message = self._class((0,))()
        _fill(message, value)
        return bytes(message.SerializeToString())

    def _class(self, indexes: tuple[int, ...]) -> Any:
        from google.protobuf import message_factory

        return message_factory.GetMessageClass(self.descriptor(indexes))


def _file(registry: Registry, schema: Schema) -> FileDescriptor:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
    except ImportError:
        raise RegistryError("Protobuf needs: pip install 'kohort[registry]'") from None
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import any_pb2, duration_pb2, timestamp_pb2, wrappers_pb2

    known = {one.DESCRIPTOR.name: one for one in (any_pb2, duration_pb2, timestamp_pb2, wrappers_pb2)}
    for one in known.values():
        pool.AddSerializedFile(one.DESCRIPTOR.serialized_pb)
    name = f"schema-{schema.id}.proto"
    schemas = _with_references(registry, schema, name)
    compiled = {each: registry.descriptor(one.id) for each, one in schemas.items()}
    if None in compiled.values():
        for file in compile_text({each: one.text for each, one in schemas.items()}, name):
            if file.name not in known:
                pool.Add(file)
        return pool.FindFileByName(name)
    for each, data in compiled.items():
        file = descriptor_pb2.FileDescriptorProto.FromString(data or b"")
        file.name = each
        pool.Add(file)
    return pool.FindFileByName(name)


def _with_references(registry: Registry, schema: Schema, name: str) -> dict[str, Schema]:
    """What a schema imports, by the names it uses, each before those that import it; then the schema itself."""
    found: dict[str, Schema] = {}
    for reference in schema.references:
        found |= _with_references(registry, registry.version(reference.subject, reference.version), reference.name)
    return {**found, name: schema}


def _value(message: Any) -> dict[str, Any]:
    """Every field of a message; None for a message or optional field that is not set."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _plain(inner, item) for key, item in value.items()}
    if field.is_repeated:
        return [_plain(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, value)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            import datetime

            return value.ToDatetime(tzinfo=datetime.UTC)
        return _value(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return value


def _fill(message: Any, value: Any) -> None:
    for name, item in value.items():
        if item is None:
            continue
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise RegistryError(f"{message.DESCRIPTOR.full_name} has no field {name}")
        if is_map(field):
            target, of_messages = getattr(message, name), field.message_type.fields_by_name["value"].message_type
            for key, one in item.items():
                if of_messages is not None:
                    _fill(target[key], one)
                else:
                    target[key] = one
        elif field.is_repeated and field.message_type is not None:
            for one in item:
                _fill(getattr(message, name).add(), one)
        elif field.is_repeated:
            getattr(message, name).extend(item)
        elif field.message_type is not None:
            target = getattr(message, name)
            if field.message_type.full_name == "google.protobuf.Timestamp":
                target.FromDatetime(item)
            else:
                target.SetInParent()
                _fill(target, item)
        else:
            number = field.enum_type.values_by_name[item].number if field.enum_type is not None else item
            setattr(message, name, number)
