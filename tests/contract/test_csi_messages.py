"""Our tables of messages and services are those of CSI 1.13 and of the kubelet, to the number."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from localvolume.csi.wire import descriptors, messages, tables
from localvolume_lab.controlplane.build import find_go
from tests.suite.until import until

_ESCAPE = re.compile(rb'\\(?:x([0-9a-f]{2})|([abfnrtv\\"]))')
_PLAIN = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def of_string(source: bytes) -> bytes:
    """The descriptor that newer generated Go code has as one long string."""
    literals = re.search(rb'rawDesc = "" \+\n((?:\t"(?:[^"\\\n]|\\.)*"(?: \+)?\n)+)', source)
    assert literals is not None
    joined = b"".join(re.findall(rb'^\t"(.*)"', literals[1], re.MULTILINE))
    return _ESCAPE.sub(
        lambda found: (
            bytes.fromhex(found[1].decode()) if found[1] else _PLAIN.get(found[2], found[2])
        ),
        joined,
    )


def of_bytes(source: bytes) -> bytes:
    """The descriptor that older generated Go code has as an array."""
    array = re.search(rb"rawDesc = string\(\[\]byte\{(.*?)\}\)", source, re.DOTALL)
    assert array is not None
    return bytes(int(one, 16) for one in re.findall(rb"0x([0-9a-f]{2})", array[1]))


CSI = (
    "github.com/container-storage-interface/spec@v1.13.0",
    "lib/go/csi/csi.pb.go",
    of_string,
    tables.CSI_PACKAGE,
    tables.CSI_MESSAGES,
)
REGISTRATION = (
    "k8s.io/kubelet@v0.34.4",
    "pkg/apis/pluginregistration/v1/api.pb.go",
    of_bytes,
    tables.REGISTRATION_PACKAGE,
    tables.REGISTRATION_MESSAGES,
)


def fetched(module: str) -> Path:
    """The directory of a Go module, from the cache or the network."""
    go = find_go()

    def fetch() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [go, "mod", "download", "-json", module],
            cwd="/",
            env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
            capture_output=True,
            timeout=600,
            check=False,
        )

    # The network may fail for a moment.
    done = until(fetch, lambda done: done.returncode == 0, every=5.0)
    return Path(json.loads(done.stdout)["Dir"])


def facts(file: FileDescriptorProto) -> set[tuple[str, ...]]:
    """What is on the wire: types, fields, numbers, values."""
    return {
        *(one for message in file.message_type for one in _message(file.package, message)),
        *(one for enum in file.enum_type for one in _enum(file.package, enum)),
    }


def _message(outer: str, message: DescriptorProto) -> Iterator[tuple[str, ...]]:
    name = f"{outer}.{message.name}"
    yield "message", name, str(message.options.map_entry)
    for field in message.field:
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        yield (
            "field",
            f"{name}.{field.name}",
            str(field.number),
            FieldDescriptorProto.Type.Name(field.type),
            FieldDescriptorProto.Label.Name(field.label),
            field.type_name,
            oneof,
        )
    for nested in message.nested_type:
        yield from _message(name, nested)
    for enum in message.enum_type:
        yield from _enum(name, enum)


def _enum(outer: str, enum: EnumDescriptorProto) -> Iterator[tuple[str, ...]]:
    for value in enum.value:
        yield "value", f"{outer}.{enum.name}.{value.name}", str(value.number)


@pytest.mark.needs("go")
@pytest.mark.parametrize(
    ("module", "path", "read", "package", "table"), [CSI, REGISTRATION], ids=["csi", "kubelet"]
)
def test_the_tables_are_those_of_the_specification(
    module: str, path: str, read: Callable[[bytes], bytes], package: str, table: str
) -> None:
    real = FileDescriptorProto.FromString(read((fetched(module) / path).read_bytes()))
    assert real.package == package
    ours = descriptors.file_of(package, table)
    assert facts(ours) == facts(real)
    assert len(facts(ours)) > 8
    rpcs = {
        f"{package}.{service.name}": {
            method.name: (method.input_type, method.output_type, method.server_streaming)
            for method in service.method
        }
        for service in real.service
    }
    assert rpcs == {
        service: {
            rpc: (f".{package}.{one.request}", f".{package}.{one.response}", one.streamed)
            for rpc, one in rpcs.items()
        }
        for service, rpcs in messages.SERVICES.items()
        if service.startswith(f"{package}.")
    }


def test_rpcs_have_names_of_their_own_over_all_services() -> None:
    """A server takes its handlers by the RPC's name alone."""
    names = [rpc for rpcs in messages.SERVICES.values() for rpc in rpcs]
    assert len(names) == len({*names}) == 38


def test_enums_are_there_by_name_and_nothing_else_is() -> None:
    assert messages.DATA_LOSS == messages.VolumeHealthErrorType.Value("DATA_LOSS") == 3
    with pytest.raises(AttributeError, match="have no Nonsense"):
        _ = messages.Nonsense
