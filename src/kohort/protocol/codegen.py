"""Writes the Python source that reads and writes one struct in one version, the way attrs and dataclasses write theirs.

Runs of fixed-size fields, with the length prefix that ends them, become one `struct` call. Nothing here touches bytes:
`messages` compiles the text and `wire` holds the few helpers that the text calls.

Safety of the readers: a slice past the end comes out short, but then `pos` lies past the end, and the next fixed read,
index or the final check refuses it; an array's length is checked against the bytes left before anything is built of it.
"""

import struct as _struct
from typing import Any

from kohort.protocol.schema import Field, StructDefinition

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
SIZES = {kind: _struct.calcsize(">" + code) for kind, code in FORMATS.items()}


class Source:
    """Lines of a function body plus the constants they refer to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.depth = 1
        self._run: list[tuple[str, str]] = []

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def constant(self, prefix: str, struct: _struct.Struct, value: Any) -> str:
        """A name for a struct's pack or unpack, the same wherever the format is the same."""
        name = prefix + struct.format[1:].replace("?", "o")
        self.constants[name] = value
        return name

    def fixed(self, expression: str, code: str) -> None:
        """Queue one fixed-size value; `flush_*` turns the queue into one struct call."""
        self._run.append((expression, code))

    def packer(self) -> tuple[list[str], _struct.Struct] | None:
        if not self._run:
            return None
        run, self._run = self._run, []
        return [expression for expression, _ in run], struct_of("".join(code for _, code in run))


_STRUCTS: dict[str, _struct.Struct] = {}


def struct_of(codes: str) -> _struct.Struct:
    if codes not in _STRUCTS:
        _STRUCTS[codes] = _struct.Struct(">" + codes)
    return _STRUCTS[codes]


def default_expression(field: Field) -> str:
    """The default as source; a struct's default is a new instance, named by its class."""
    if field.default is None:
        return "None"
    if field.is_array:
        return "[]"
    if field.struct is not None:
        return f"{field.struct.name}()"
    return repr(field.default)


def is_flexible(field: Field, flexible: bool, version: int) -> bool:
    return version in field.flexible if field.flexible is not None else flexible


# --- reading ---


def reader_source(
    struct: StructDefinition, version: int, flexible: bool, bounded: bool = False
) -> tuple[str, dict[str, Any]]:
    """`def read_S(buf, pos) -> (object, pos)` and, in flexible versions, `def read_tags_S(o, buf, pos, n) -> pos`.

    Where it is `bounded` arrays within arrays count together for MAX_ELEMENTS."""
    source = Source()
    source.emit(f"o = new({struct.name})")
    for field in struct.fields:
        if version not in field.versions or version in field.tagged:
            source.emit(f"o.{field.name} = {default_expression(field)}")
    source.emit("o.unknown_tags = None")
    for field in struct.fields:
        if version in field.versions and version not in field.tagged:
            _read_field(source, field, version, is_flexible(field, flexible, version), bounded)
    if flexible:
        _flush_reads(source)
        _read_uvarint(source)
        source.emit("if n:")
        source.emit(f"    pos = read_tags_{struct.name}(o, buf, pos, n)")
    _flush_reads(source)
    text = f"def read_{struct.name}(buf, pos):\n" + "\n".join(source.lines) + "\n    return o, pos\n"
    if flexible:
        text += _tags_reader(source, struct, version, bounded)
    return text, source.constants


def _flush_reads(source: Source) -> None:
    packed = source.packer()
    if packed is None:
        return
    targets, struct = packed
    name = source.constant("unpack_", struct, struct.unpack_from)
    source.emit(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {name}(buf, pos)")
    source.emit(f"pos += {struct.size}")


def _read_uvarint(source: Source, tail: str = "uvarint_tail") -> None:
    source.emit("n = buf[pos]; pos += 1")
    source.emit(f"if n > 127: n, pos = {tail}(buf, pos, n)")


def _read_length(source: Source, code: str, flexible: bool) -> None:
    """Leaves the length in `n`, -1 for null."""
    if flexible:
        _flush_reads(source)
        _read_uvarint(source, "string_tail" if code == "h" else "uvarint_tail")
        source.emit("n -= 1")
    else:
        source.fixed("n", code)
        _flush_reads(source)


def _read_field(source: Source, field: Field, version: int, flexible: bool, bounded: bool) -> None:
    target, nullable = f"o.{field.name}", version in field.nullable
    if field.is_array:
        _read_length(source, "i", flexible)
        _or_null(source, target, nullable, field.name)
        _read_array(source, field, target, version, flexible, bounded)
        source.depth -= 1
    elif field.struct is not None:
        _flush_reads(source)
        if nullable:
            source.emit("n = buf[pos]; pos += 1")
            # Null is a byte of -1, but as a tagged field an unsigned 0.
            source.emit(f"if n {'== 0' if version in field.tagged else '> 127'}: {target} = None")
            source.emit(f"else: {target}, pos = read_{field.struct.name}(buf, pos)")
        else:
            source.emit(f"{target}, pos = read_{field.struct.name}(buf, pos)")
    elif field.type in FORMATS:
        source.fixed(target, FORMATS[field.type])
    else:
        _read_length(source, "h" if field.type == "string" else "i", flexible)
        _or_null(source, target, nullable, field.name)
        source.emit("end = pos + n")
        source.emit(f"{target} = {_slice(field.type)}; pos = end")
        source.depth -= 1


def _or_null(source: Source, target: str, nullable: bool, name: str) -> None:
    """Opens the branch in which the value is there."""
    source.emit("if n < 0:")
    source.emit(f"    {target} = None" if nullable else f"    raise DecodeError({f'{name} must not be null'!r})")
    source.emit("else:")
    source.depth += 1


def _slice(kind: str) -> str:
    if kind == "string":
        return "str(buf[pos:end], 'utf-8')"
    if kind == "records":
        return "memoryview(buf)[pos:end]"
    return "bytes(buf[pos:end])"


def _nested(struct: StructDefinition, version: int, owner: str) -> str:
    """Source of how many elements the arrays of a struct have together, those within them included; "" without any."""
    counts = []
    for field in struct.fields:
        if not field.is_array or version not in field.versions or version in field.tagged:
            continue
        counts.append(f"len({owner}.{field.name} or ())")
        inner = _nested(field.struct, version, f"{owner}_") if field.struct is not None else ""
        if inner:
            counts.append(f"sum({inner} for {owner}_ in {owner}.{field.name} or ())")
    return " + ".join(counts)


def _read_array(source: Source, field: Field, target: str, version: int, flexible: bool, bounded: bool) -> None:
    element_size = 1 if field.struct is not None else SIZES.get(field.type, 1 if flexible else 2)
    times = f" * {element_size}" if element_size > 1 else ""
    source.emit(f"if n{times} > len(buf) - pos: raise DecodeError({f'{field.name}: more elements than bytes'!r})")
    source.emit(f"if n > MAX_ELEMENTS: raise DecodeError({f'{field.name}: too many elements'!r})")
    if field.struct is None and field.type in FORMATS and field.type not in ("uuid", "bool"):
        source.emit(f"{target} = list(unpack_from('>%d{FORMATS[field.type]}' % n, buf, pos)); pos += n{times}")
        return
    source.emit(f"{target} = items = []")
    nested = _nested(field.struct, version, "item") if bounded and field.struct is not None else ""
    if nested:
        source.emit("total = n")
    source.emit("for _ in range(n):")
    source.depth += 1
    if field.struct is not None:
        source.emit(f"item, pos = read_{field.struct.name}(buf, pos)")
        source.emit("items.append(item)")
        if nested:
            source.emit(f"total += {nested}")
            source.emit(f"if total > MAX_ELEMENTS: raise DecodeError({f'{field.name}: too many elements'!r})")
    elif field.type == "uuid":
        source.emit("items.append(bytes(buf[pos:pos + 16])); pos += 16")
    else:
        _read_length(source, "h" if field.type == "string" else "i", flexible)
        source.emit(f"if n < 0: raise DecodeError({f'{field.name}: element must not be null'!r})")
        source.emit("end = pos + n")
        source.emit(f"items.append({_slice(field.type)}); pos = end")
    source.depth -= 1


def _tags_reader(source: Source, struct: StructDefinition, version: int, bounded: bool) -> str:
    source.lines = []
    if bounded:
        source.emit("if n > MAX_TAGS: raise DecodeError('too many tagged fields')")
    source.emit("if n > len(buf) - pos: raise DecodeError('more tagged fields than bytes')")
    source.emit("for _ in range(n):")
    source.depth += 1
    source.emit("tag, pos = uvarint(buf, pos)")
    source.emit("size, pos = uvarint(buf, pos)")
    source.emit("limit = pos + size")
    source.emit("if limit > len(buf): raise DecodeError('tagged field past the end')")
    keyword = "if"
    for field in struct.fields:
        if version in field.versions and version in field.tagged:
            source.emit(f"{keyword} tag == {field.tag}:")
            source.depth += 1
            _read_field(source, field, version, True, bounded)
            _flush_reads(source)
            source.emit(f"if pos != limit: raise DecodeError({f'tagged field {field.name} has another size'!r})")
            source.depth -= 1
            keyword = "elif"
    if keyword == "elif":
        source.emit("else:")
        source.depth += 1
    source.emit("if o.unknown_tags is None: o.unknown_tags = {}")
    source.emit("o.unknown_tags[tag] = bytes(buf[pos:limit]); pos = limit")
    return f"def read_tags_{struct.name}(o, buf, pos, n):\n" + "\n".join(source.lines) + "\n    return pos\n"


# --- writing ---


def writer_source(struct: StructDefinition, version: int, flexible: bool) -> tuple[str, dict[str, Any]]:
    """`def write_S(o, put)`: puts chunks of bytes; and `def write_tags_S(o, put)` where the version has tags."""
    source = Source()
    for field in struct.fields:
        if version not in field.versions:
            _refuse_unwritable(source, field, version)
    for field in struct.fields:
        if version in field.versions and version not in field.tagged:
            _write_field(source, field, f"o.{field.name}", version, is_flexible(field, flexible, version))
    tagged = [field for field in struct.fields if version in field.versions and version in field.tagged]
    if flexible:
        _flush_writes(source)
        if tagged:
            source.emit(f"write_tags_{struct.name}(o, put)")
        else:
            source.emit("if o.unknown_tags: write_tags(o.unknown_tags, put)")
            source.emit("else: put(b'\\0')")
    _flush_writes(source)
    body = "\n".join(source.lines) or "    pass"
    text = f"def write_{struct.name}(o, put):\n{body}\n"
    if tagged:
        text += _tags_writer(source, struct, tagged, version)
    return text, source.constants


def _is_set(field: Field, owner: str = "o") -> str:
    """Source of the test whether a field differs from its default."""
    value = f"{owner}.{field.name}"
    if field.default is None:
        return f"{value} is not None"
    if field.is_array or field.default in ("", b"", 0, False):
        return f"{value} is None or {value}" if field.nullable.low <= field.nullable.high else value
    if field.struct is not None:
        null = [f"{value} is None"] if field.nullable.low <= field.nullable.high else []
        inside = (f"({_is_set(inner, value)})" for inner in field.struct.fields)
        return " or ".join([*null, *inside, f"{value}.unknown_tags"])
    return f"{value} != {default_expression(field)}"


def _refuse_unwritable(source: Source, field: Field, version: int) -> None:
    if not field.ignorable:
        source.emit(f"if {_is_set(field)}: raise UnsupportedFieldError({field.name!r}, {version})")


def _flush_writes(source: Source) -> None:
    packed = source.packer()
    if packed is None:
        return
    values, struct = packed
    name = source.constant("pack_", struct, struct.pack)
    source.emit(f"put({name}({', '.join(values)}))")


def _put_length(source: Source, value: str, code: str, flexible: bool) -> None:
    if flexible:
        _flush_writes(source)
        source.emit(f"put(UVARINTS[{value} + 1] if {value} < 127 else uvarint_bytes({value} + 1))")
    else:
        source.fixed(value, code)
        _flush_writes(source)


def _put_null(source: Source, code: str, flexible: bool) -> None:
    if flexible:
        source.emit("put(b'\\0')")
    else:
        source.emit(f"put({'NULL_STRING' if code == 'h' else 'NULL_BYTES'})")


def _write_field(source: Source, field: Field, value: str, version: int, flexible: bool) -> None:
    nullable = version in field.nullable
    if not field.is_array and field.struct is None and field.type in FORMATS:
        source.fixed(value, FORMATS[field.type])
        return
    if nullable:
        _flush_writes(source)
        source.emit(f"if {value} is None:")
        source.depth += 1
        if field.struct is not None and not field.is_array:
            source.emit("put(b'\\0')" if version in field.tagged else "put(b'\\xff')")
        else:
            _put_null(source, "h" if field.type == "string" and not field.is_array else "i", flexible)
        source.depth -= 1
        source.emit("else:")
        source.depth += 1
    _write_present(source, field, value, flexible, nullable)
    if nullable:
        _flush_writes(source)
        source.depth -= 1


def _write_present(source: Source, field: Field, value: str, flexible: bool, nullable: bool) -> None:
    if field.is_array:
        _write_array(source, field, value, flexible)
    elif field.struct is not None:
        _flush_writes(source)
        if nullable:
            source.emit("put(b'\\x01')")
        source.emit(f"write_{field.struct.name}({value}, put)")
    elif field.type == "records":
        source.emit(f"b = {value}")
        source.emit("n = sum(map(len, b)) if isinstance(b, (list, tuple)) else len(b)")
        _put_length(source, "n", "i", flexible)
        source.emit("if isinstance(b, (list, tuple)):")
        source.emit("    for chunk in b: put(chunk)")
        source.emit("else: put(b)")
    else:
        is_string = field.type == "string"
        source.emit(f"b = {value}.encode()" if is_string else f"b = {value}")
        source.emit("n = len(b)")
        if is_string:
            source.emit("if n > 32767: raise EncodeError('string longer than 32767 bytes')")
        _put_length(source, "n", "h" if is_string else "i", flexible)
        source.emit("put(b)")


def _write_array(source: Source, field: Field, value: str, flexible: bool) -> None:
    source.emit(f"items = {value}")
    source.emit("n = len(items)")
    _put_length(source, "n", "i", flexible)
    if field.struct is None and field.type in FORMATS and field.type != "uuid":
        source.emit(f"put(pack('>%d{FORMATS[field.type]}' % n, *items))")
        return
    if field.struct is not None:
        source.emit("if items.__class__ is Encoded:")
        source.emit("    for b in items.parts: put(b)")
        source.emit(f"else:\n{'    ' * source.depth}    for item in items: write_{field.struct.name}(item, put)")
        return
    source.emit("for item in items:")
    source.depth += 1
    if field.type == "uuid":
        source.emit("put(item)")
    else:
        source.emit("b = item.encode()" if field.type == "string" else "b = item")
        source.emit("n = len(b)")
        _put_length(source, "n", "h" if field.type == "string" else "i", flexible)
        source.emit("put(b)")
    source.depth -= 1


def _tags_writer(source: Source, struct: StructDefinition, tagged: list[Field], version: int) -> str:
    """Tagged fields leave in the order of their tags, unknown ones among them; a default is not written."""
    source.lines = []
    source.emit("tags = dict(o.unknown_tags) if o.unknown_tags else {}")
    for field in tagged:
        source.emit(f"if {_is_set(field)}:")
        source.depth += 1
        source.emit("chunks = []; outer = put; put = chunks.append")
        _write_field(source, field, f"o.{field.name}", version, True)
        _flush_writes(source)
        source.emit(f"tags[{field.tag}] = b''.join(chunks); put = outer")
        source.depth -= 1
    source.emit("write_tags(tags, put)")
    return f"def write_tags_{struct.name}(o, put):\n" + "\n".join(source.lines) + "\n"
