"""From the tables to protobuf: the descriptor of each package, and the signature of each RPC."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2, wrappers_pb2

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final[dict[str, Any]] = {
    "string": _FIELD.TYPE_STRING,
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
}
_WELL_KNOWN: Final = ("BoolValue", "Int64Value", "Timestamp")
_PROTOBUF: Final = (timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR)


@dataclass(frozen=True, slots=True)
class Signature:
    """An RPC's full name, its messages, and whether its answer is a stream of them."""

    path: str
    request: str
    response: str
    streamed: bool


def pool() -> descriptor_pool.DescriptorPool:
    """A pool that has nothing but what protobuf itself brings."""
    made = descriptor_pool.DescriptorPool()
    for one in _PROTOBUF:
        # Serialised: a descriptor belongs to the pool that made it.
        made.AddSerializedFile(one.serialized_pb)
    return made


def well_known() -> Iterator[str]:
    """The full names of protobuf's own messages that the tables use."""
    return (f"google.protobuf.{name}" for name in _WELL_KNOWN)


def signatures(package: str, table: str) -> dict[str, dict[str, Signature]]:
    """The RPCs of each service of a table, by the service's full name and their own."""
    return {
        f"{package}.{service}": {
            rpc.split()[0]: _signature(f"/{package}.{service}/", *rpc.split())
            for rpc in rpcs.split(",")
        }
        for service, rpcs in (line.split(":") for line in _lines(table))
    }


def _signature(prefix: str, rpc: str, *more: str) -> Signature:
    request, response = more if len(more) == 2 else (f"{rpc}Request", f"{rpc}Response")
    return Signature(prefix + rpc, request, response, more == ("*",))


def file_of(package: str, table: str) -> descriptor_pb2.FileDescriptorProto:
    """The file of a package with all messages and enums of its table."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto",
        package=package,
        syntax="proto3",
        dependency=[one.name for one in _PROTOBUF],
    )
    bodies = {re.split(r"[: ]", line)[0]: line for line in _lines(table)}
    enums = {name for name, line in bodies.items() if " = " in line}
    made: dict[str, Any] = {"": file}
    # A type comes after the one that it is nested in, which has fewer dots.
    for name in sorted(bodies, key=lambda name: name.count(".")):
        outer, _, own = name.rpartition(".")
        if name in enums:
            enum = made[outer].enum_type.add(name=own)
            for number, value in enumerate(bodies[name].split(" = ")[1].split()):
                if value != "-":
                    enum.value.add(name=value, number=number)
        else:
            types = made[outer].nested_type if outer else file.message_type
            made[name] = types.add(name=own)
            for field in filter(None, bodies[name].partition(":")[2].split(",")):
                _add_field(made[name], field.split(), name, package, bodies.keys(), enums)
    return file


def _add_field(
    message: Any, words: list[str], name: str, package: str, types: Collection[str], enums: set[str]
) -> None:
    """Add a field that is written `NUMBER NAME`, `... TYPE` or `... TYPE of ONEOF`."""
    kind = words[2] if len(words) > 2 else "string"
    field = message.field.add(
        name=words[1], number=int(words[0]), label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_MESSAGE
    )
    if len(words) == 5:
        oneofs = [oneof.name for oneof in message.oneof_decl]
        if words[4] not in oneofs:
            message.oneof_decl.add(name=words[4])
            oneofs.append(words[4])
        field.oneof_index = oneofs.index(words[4])
    if kind.startswith("["):
        field.label, kind = _FIELD.LABEL_REPEATED, kind.strip("[]")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind == "map":
        # On the wire, a map is a repeated message of keys and values.
        entry = "".join(word.capitalize() for word in words[1].split("_")) + "Entry"
        made = message.nested_type.add(name=entry)
        made.options.map_entry = True
        _add_field(made, ["1", "key"], "", package, types, enums)
        _add_field(made, ["2", "value"], "", package, types, enums)
        field.label, field.type_name = _FIELD.LABEL_REPEATED, f".{package}.{name}.{entry}"
    elif kind in _WELL_KNOWN:
        field.type_name = f".google.protobuf.{kind}"
    else:
        found = _found(kind, name, types)
        field.type_name = f".{package}.{found}"
        if found in enums:
            field.type = _FIELD.TYPE_ENUM


def _found(kind: str, within: str, types: Collection[str]) -> str:
    """The full name of a type, looked for from the inside out."""
    while within:
        if f"{within}.{kind}" in types:
            return f"{within}.{kind}"
        within = within.rpartition(".")[0]
    return kind


def _lines(table: str) -> list[str]:
    """The lines of a table; one that is indented goes on with the line before."""
    return [line for line in re.sub(r"\n +", " ", table).splitlines() if line]
