"""Every file of an image comes from a component that the bill names, or the image is not built."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from image import bill
from image.files import File, Origins, by_component, of_archive, recorded
from image.running import BuildFailed

PLACE = "/usr/local/lib/dist-packages"
ORIGINS = Origins(
    listed={"/usr/bin/dash": "dash", "/etc/lvm/lvm.conf": "lvm2", f"{PLACE}/a/b.py": "a"},
    below={f"{PLACE}/ours": "ours", "/usr/local/bin": "ours", "/usr/local/bin/client": "client"},
    build="build",
)


@pytest.mark.parametrize(
    ("path", "component"),
    [
        ("/usr/bin/dash", "dash"),
        (f"{PLACE}/a/b.py", "a"),
        (f"{PLACE}/a/__pycache__/b.cpython-313.opt-2.pyc", "a"),
        (f"{PLACE}/ours/any/thing.py", "ours"),
        (f"{PLACE}/ours/__pycache__/x.cpython-313.opt-2.pyc", "ours"),
        ("/usr/local/bin/localvolume", "ours"),
        ("/usr/local/bin/client", "client"),
        # A package has one of that name; the content is the build's.
        ("/etc/lvm/lvm.conf", "build"),
        ("/var/lib/dpkg/status.d/dash", "build"),
        ("/bin", "build"),
    ],
)
def test_where_a_file_comes_from(path: str, component: str) -> None:
    assert ORIGINS.of(path) == component


@pytest.mark.parametrize(
    "path",
    [
        "/etc/hostname",
        # Compiled from nothing that is there.
        f"{PLACE}/a/__pycache__/c.cpython-313.opt-2.pyc",
        # Beside ours, and not in it.
        f"{PLACE}/ours.py",
        "/binary",
    ],
)
def test_what_comes_from_nowhere_stops_the_build(path: str) -> None:
    with pytest.raises(BuildFailed, match="nothing says where"):
        by_component([File(path, "0" * 64)], ORIGINS)


def layer(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def archived(path: Path, *layers: bytes) -> Path:
    names = [f"{number}.tar" for number in range(len(layers))]
    manifest = json.dumps([{"Layers": names}]).encode()
    parts = zip(["manifest.json", *names], [manifest, *layers], strict=True)
    path.write_bytes(layer(*((member(name), content) for name, content in parts)))
    return path


def test_the_files_of_all_layers_the_uppermost_counts(tmp_path: Path) -> None:
    lower = layer(
        (member("./etc", tarfile.DIRTYPE), b""),
        (member("./etc/a"), b"old"),
        (member("./etc/hard", tarfile.LNKTYPE, "./etc/a"), b""),
        (member("./etc/soft", tarfile.SYMTYPE, "a"), b""),
    )
    upper = layer((member("etc/a"), b"new"))
    found = of_archive(archived(tmp_path / "it.tar", lower, upper))
    assert [file.path for file in found] == ["/etc/a", "/etc/hard", "/etc/soft"]
    new, hard, soft = found
    assert new.sha256 == hashlib.sha256(b"new").hexdigest()
    assert hard.sha256 == hashlib.sha256(b"old").hexdigest()
    assert (soft.sha256, soft.target) == ("", "a")


@pytest.mark.parametrize(
    "odd", [member("dev/null", tarfile.CHRTYPE), member("etc/.wh.a"), member("f", tarfile.FIFOTYPE)]
)
def test_what_is_no_file_and_what_removes_one_stop_the_build(
    tmp_path: Path, odd: tarfile.TarInfo
) -> None:
    with pytest.raises(BuildFailed):
        of_archive(archived(tmp_path / "it.tar", layer((odd, b""))))


def test_the_bill_has_files_below_their_component() -> None:
    parts = bill.of_go("client", "1", "1.24")
    program = parts[0]["bom-ref"]
    files = [File("/usr/local/bin/client", "1" * 64), File("/usr/local/bin/other", target="client")]
    first, second = bill.with_files(parts, {program: files})
    content, link = first["components"]
    assert content["hashes"] == [{"alg": "SHA-256", "content": "1" * 64}]
    assert link["properties"] == [{"name": "localvolume.dev:link", "value": "client"}]
    assert "components" not in second
    with pytest.raises(KeyError, match="nobody"):
        bill.with_files(parts, {"nobody": files})


def test_python_says_which_files_are_a_packages(tmp_path: Path) -> None:
    described = tmp_path / "a-1.dist-info"
    described.mkdir()
    (described / "RECORD").write_text('a/b.py,sha256=x,1\n"a/c,d.py",,\n')
    assert recorded(tmp_path, "usr/lib") == {
        "/usr/lib/a/b.py": "a-1.dist-info",
        "/usr/lib/a/c,d.py": "a-1.dist-info",
    }
