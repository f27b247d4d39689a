"""An image is of the packages that are recorded; one that is not there stops its build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from image import application, base, pins
from image.architectures import here
from image.mirror import offered, sources
from image.pins import Package
from image.running import BuildFailed, turn
from tests.image.support_mirror import Empty, mirror

pytestmark = pytest.mark.needs("image")

Mirrors = Callable[[], list[str]]
#: As a mirror has them: the first needs the second.
PARTS = [Empty("dash", "2", "libc6"), Empty("libc6", "3")]


def record(file: Path, *packages: Package) -> Path:
    file.write_text(pins.written(packages))
    return file


def recorded(name: str, version: str) -> Package:
    """With a digest that no archive has."""
    return Package(name, version, "0" * 64)


@pytest.fixture(scope="module")
def mirrors(tmp_path_factory: pytest.TempPathFactory) -> Mirrors:
    """Of a mirror with all that the image asks for, by name alone."""
    others = [Empty(name, "1") for name in base.names() if name not in {p.name for p in PARTS}]
    lines = mirror(tmp_path_factory.mktemp("mirror"), [*PARTS, *others])
    return lambda: lines


def test_a_version_that_the_mirror_does_not_have_is_told_with_what_it_has(
    tmp_path: Path, mirrors: Mirrors
) -> None:
    """And a name that it does not have. Nothing else is taken in their place."""
    wanted = recorded("dash", "0.1-gone"), recorded("no-such-package", "1"), recorded("libc6", "3")
    with turn(), pytest.raises(BuildFailed) as refused:
        base.build(file=record(tmp_path / "packages.test", *wanted), mirrors=mirrors)
    assert str(refused.value).splitlines()[:3] == [
        "the mirror has no more what is recorded:",
        "dash: 0.1-gone is recorded, and the mirror has 2",
        "no-such-package: 1 is recorded, and the mirror has none",
    ]
    assert "--allow-newest" in str(refused.value)


def test_the_command_says_so_and_writes_nothing(tmp_path: Path) -> None:
    """Here of a record that is none, for which no mirror is asked."""
    shutil.copytree(base.HERE, tmp_path / "image", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(application.ROOT / "pyproject.toml", tmp_path)
    (tmp_path / application.CLIENT).parent.mkdir()
    (tmp_path / application.CLIENT).touch()
    broken = tmp_path / "image" / base.record_file().name
    broken.write_text("dash\n")
    argv = [sys.executable, "-m", "image", "--output", str(tmp_path / "image.tar")]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith(f"image: {broken.name}: line 1 is not `name=version")
    assert not (tmp_path / "image.tar").exists()


def test_the_newest_are_taken_where_that_is_allowed_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of Debian's own mirrors, to the end: what is taken is a base."""
    gone = recorded("dash", "0.1-gone")
    with turn():
        built = base.build(allow_newest=True, file=record(tmp_path / "packages.test", gone))
    try:
        found = {package.name: package for package in base.packages(built)}
    finally:
        built.unlink()
    assert set(base.names()) <= found.keys()
    assert found["dash"].version in offered(["dash"], sources(), here())["dash"]
    said = capsys.readouterr().out.splitlines()
    assert f"  dash: 0.1-gone is recorded, and {found['dash'].version} is there" in said
    assert f"  libc6: {found['libc6'].version} is there, and not recorded" in said


@pytest.mark.parametrize("allowed", [False, True])
def test_an_archive_of_the_same_version_with_other_bytes_is_refused(
    tmp_path: Path, mirrors: Mirrors, allowed: bool
) -> None:
    """Also where it is among the newest, as another has to be that is gone."""
    part, *more = recorded("libc6", "3"), *([recorded("dash", "0.1-gone")] * allowed)
    file = record(tmp_path / "packages.test", part, *more)
    with turn(), pytest.raises(BuildFailed, match="an archive has changed") as refused:
        base.build(allow_newest=allowed, file=file, mirrors=mirrors)
    assert f"{part.asked_for}: sha256:{part.sha256} is recorded, and sha256:" in str(refused.value)


def test_what_comes_along_unrecorded_is_refused(tmp_path: Path, mirrors: Mirrors) -> None:
    file = record(tmp_path / "packages.test", recorded("dash", "2"))
    with turn(), pytest.raises(BuildFailed, match="other packages came") as refused:
        base.build(file=file, mirrors=mirrors)
    assert "\nlibc6: 3 is there, and not recorded" in str(refused.value)


def test_without_a_record_nothing_is_built(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"there is no packages\.none"):
        base.build(file=tmp_path / "packages.none")
