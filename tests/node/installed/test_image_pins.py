"""An image is of the packages that are recorded; one that is not there stops its build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from image import application, base, pins
from image.mirror import offered
from image.pins import Package
from image.running import BuildFailed, turn

pytestmark = pytest.mark.needs("image")

#: The last needs no other.
PARTS = ("dash", "libc6", "gcc-14-base")


def record(file: Path, *packages: Package) -> Path:
    file.write_text(pins.written(packages))
    return file


@pytest.fixture(scope="module")
def parts() -> dict[str, Package]:
    """As the mirror has them now, with a digest that no archive has."""
    versions = offered(list(PARTS))
    return {name: Package(name, versions[name][0], "0" * 64) for name in PARTS}


def test_a_version_that_the_mirror_does_not_have_is_told_with_what_it_has(
    tmp_path: Path, parts: dict[str, Package]
) -> None:
    """And a name that it does not have. Nothing else is taken in their place."""
    shutil.copytree(base.HERE, tmp_path / "image", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(application.ROOT / "pyproject.toml", tmp_path)
    (tmp_path / application.CLIENT).parent.mkdir()
    (tmp_path / application.CLIENT).touch()
    wanted = Package("dash", "0.1-gone", "0" * 64), Package("no-such-package", "1", "0" * 64)
    record(tmp_path / "image" / base.record_file().name, *wanted, parts["libc6"])
    argv = [sys.executable, "-m", "image", "--output", str(tmp_path / "image.tar")]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[:3] == [
        "image: the mirror has no more what is recorded:",
        f"dash: 0.1-gone is recorded, and the mirror has {parts['dash'].version}",
        "no-such-package: 1 is recorded, and the mirror has none",
    ]
    assert "--allow-newest" in done.stderr
    assert not (tmp_path / "image.tar").exists()


def test_the_newest_are_taken_where_that_is_allowed_and_said(
    tmp_path: Path, parts: dict[str, Package], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = Package("dash", "0.1-gone", "0" * 64)
    with turn():
        built = base.build(allow_newest=True, file=record(tmp_path / "packages.test", recorded))
    try:
        found = {package.name: package for package in base.packages(built)}
    finally:
        built.unlink()
    assert set(base.names()) <= found.keys()
    assert found["dash"].version == parts["dash"].version
    said = capsys.readouterr().out.splitlines()
    assert f"  dash: 0.1-gone is recorded, and {found['dash'].version} is there" in said
    assert f"  libc6: {found['libc6'].version} is there, and not recorded" in said


@pytest.mark.parametrize("allowed", [False, True])
def test_an_archive_of_the_same_version_with_other_bytes_is_refused(
    tmp_path: Path, parts: dict[str, Package], allowed: bool
) -> None:
    """Also where it is among the newest, as another has to be that is gone."""
    part, *more = parts["gcc-14-base"], *([Package("dash", "0.1-gone", "0" * 64)] * allowed)
    file = record(tmp_path / "packages.test", part, *more)
    with turn(), pytest.raises(BuildFailed, match="an archive has changed") as refused:
        base.build(allow_newest=allowed, file=file)
    assert f"{part.asked_for}: sha256:{part.sha256} is recorded, and sha256:" in str(refused.value)


def test_what_comes_along_unrecorded_is_refused(tmp_path: Path, parts: dict[str, Package]) -> None:
    with turn(), pytest.raises(BuildFailed, match="other packages came") as refused:
        base.build(file=record(tmp_path / "packages.test", parts["dash"]))
    assert f"\nlibc6: {parts['libc6'].version} is there, and not recorded" in str(refused.value)


def test_without_a_record_nothing_is_built(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"there is no packages\.none"):
        base.build(file=tmp_path / "packages.none")
