"""The image for another processor: its programs are that processor's and start, its bytecode is the
same.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from image.application import PACKAGES, ROOT
from image.architectures import MACHINES, here
from image.base import VERSION
from image.build import Built, build
from tests.node.support_image import PROGRAMS, Contents, copy_of_tree

pytestmark = pytest.mark.needs("image")

#: By what a program begins with, at its 19th byte.
PROCESSORS = {"amd64": 0x3E, "arm64": 0xB7}
#: What runs the programs of a processor on this one.
EMULATORS = {"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Built, Contents]]]:
    directory = tmp_path_factory.mktemp("images")
    tree = copy_of_tree(directory / "tree")
    found = {}
    for name in MACHINES:
        if name != here():
            argv = ["make", "-C", str(ROOT), "flexvolume-client", f"ARCH={name}"]
            subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=600)
            shutil.copytree(ROOT / "build" / name, tree / "build" / name)
        root = directory / name
        root.mkdir()
        built = build(directory / f"{name}.tar", tree, allow_newest=True, architecture=name)
        found[name] = built, Contents(built, root)
    yield found
    shutil.rmtree(directory)


@pytest.mark.parametrize("name", MACHINES)
def test_every_program_is_of_the_processor(
    images: dict[str, tuple[Built, Contents]], name: str
) -> None:
    _, contents = images[name]
    assert contents.description["architecture"] == name
    programs = 0
    for path in contents.root.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            head = file.read(20)
        if head[:4] == b"\x7fELF":
            programs += 1
            assert head[18] == PROCESSORS[name], path
    assert programs > 300


@pytest.mark.needs("mount", "unshare", *EMULATORS.values())
def test_the_programs_of_the_other_processor_start(
    images: dict[str, tuple[Built, Contents]],
) -> None:
    """Also what the kubelet calls, and each module that was compiled for Python."""
    (name,) = EMULATORS.keys() - {here()}
    _, contents = images[name]
    packages = contents.root / PACKAGES
    modules = [
        ".".join([*path.parent.relative_to(packages).parts, path.name.partition(".")[0]])
        for path in packages.rglob("*.so")
    ]
    assert {"msgspec._core", "yaml._yaml"} <= {*modules}
    script = f"import platform, {', '.join(modules)}; print(platform.machine())"
    with emulated(contents, EMULATORS[name]) as said:
        for argv in PROGRAMS:
            assert said(*argv)
        assert said(f"python{VERSION}", "-c", script).split() == [MACHINES[name]]
        ours = "/usr/local/bin/localvolume"
        assert "usage:" in said(f"python{VERSION}", ours, "agent", "--help")
        assert "Success" in said("localvolume-flexvolume", "init")


@contextlib.contextmanager
def emulated(contents: Contents, emulator: str) -> Iterator[Callable[..., str]]:
    """What programs of an image print, by name. Meanwhile the emulator that runs them lies in the
    image: they find nothing of this machine."""
    found = shutil.which(emulator)
    assert found is not None
    inside = contents.root / emulator
    shutil.copy(found, inside)
    places = contents.environment["PATH"].split(":")

    def said(name: str, *arguments: str) -> str:
        paths = [f"{place}/{name}" for place in places]
        program = next(path for path in paths if Path(f"{contents.root}{path}").exists())
        return contents.run(f"/{emulator}", program, *arguments)

    try:
        yield said
    finally:
        inside.unlink()


def test_the_bytecode_of_both_is_the_same(images: dict[str, tuple[Built, Contents]]) -> None:
    """Also where the Python of one has compiled it for the other. What is not: one module that
    says how Python was built, and has a name of its own for each."""
    roots = [contents.root for _, contents in images.values()]
    compiled = [{str(one.relative_to(root)) for one in root.rglob("*.pyc")} for root in roots]
    common = compiled[0] & compiled[1]
    different = compiled[0] ^ compiled[1]
    assert all("_sysconfigdata" in name for name in different), different
    assert len(common) > 1000
    assert [
        name
        for name in sorted(common)
        if (roots[0] / name).read_bytes() != (roots[1] / name).read_bytes()
    ] == []


@pytest.mark.parametrize("name", MACHINES)
def test_the_bill_names_every_file_and_no_other(
    images: dict[str, tuple[Built, Contents]], name: str
) -> None:
    built, contents = images[name]
    components = json.loads(built.bill.read_bytes())["components"]
    named = [file["name"] for one in components for file in one.get("components", [])]
    there = {
        f"/{path.relative_to(contents.root)}"
        for path in contents.root.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    assert len(named) == len(set(named))
    assert set(named) == there
    # No file stands apart from what it comes from.
    assert not [one["name"] for one in components if one["type"] == "file"]


@pytest.mark.parametrize("name", MACHINES)
def test_nothing_of_the_machine_that_builds_is_in_it(
    images: dict[str, tuple[Built, Contents]], name: str
) -> None:
    """mmdebstrap leaves these; and Python, where it may, what it imports while it compiles."""
    _, contents = images[name]
    for file in ("etc/hostname", "etc/resolv.conf", "etc/fstab"):
        assert not (contents.root / file).exists(), file
    assert [one for one in contents.root.rglob("*.pyc") if ".opt-2." not in one.name] == []
