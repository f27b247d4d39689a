"""The files of a release: the same bytes wherever they are made, and each does what it is for."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from image.application import ROOT, version
from image.architectures import MACHINES
from image.running import BuildFailed
from release import chart, manifests, plugin, statement, wheels
from release.all import make
from tests.chart.support_helm import helm
from tests.release.support_release import IMAGE, example, pushed, registry, tree

ORDER = example(version(ROOT))


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All but the image, made of two copies of the tree by two people."""
    made = []
    monkey = pytest.MonkeyPatch()
    for name, umask, cache in (("one", 0o022, "a"), ("an/other", 0o077, "b")):
        scratch = tmp_path_factory.mktemp("release") / name
        copy, into = tree(scratch / "tree"), scratch / "made" / "dist"
        into.mkdir(parents=True)
        before = os.umask(umask)
        try:
            # As their shells have it: it says where pex keeps what it unpacks.
            monkey.setenv("PEX_ROOT", str(scratch / cache))
            wheels.make(copy, into, ORDER)
            plugin.make(copy, into, ORDER, wheels.wheel(into, ORDER))
            artifact = chart.make(copy, into, ORDER, IMAGE)
            manifests.make(into, ORDER, IMAGE)
            statement.make(copy, into, ORDER, {ORDER.image: IMAGE, ORDER.charts: artifact})
        finally:
            os.umask(before)
            monkey.undo()
        made.append(into)
    return made


@pytest.fixture(scope="module")
def release(releases: list[Path]) -> Path:
    return releases[0]


pytestmark = pytest.mark.needs("go", "git")


def test_two_builds_are_the_same_bytes(releases: list[Path]) -> None:
    one, other = releases
    assert (one / statement.SUMS).read_text() == (other / statement.SUMS).read_text()
    assert len((one / statement.SUMS).read_text().splitlines()) == 13


def test_the_sums_are_those_of_all_files(release: Path) -> None:
    argv = ["sha256sum", "--check", "--strict", statement.SUMS]
    done = subprocess.run(argv, cwd=release, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) == len(list(release.iterdir())) - 1


def test_the_provenance_is_of_every_file_and_of_what_is_pushed(release: Path) -> None:
    said = json.loads((release / ORDER.named(".intoto.json")).read_bytes())
    subjects = {one["name"]: one["digest"]["sha256"] for one in said["subject"]}
    apart = {statement.SUMS, ORDER.named(".intoto.json")}
    files = {path.name for path in release.iterdir()} - apart
    assert subjects.keys() == {*files, ORDER.image, ORDER.charts}
    for name in files:
        assert subjects[name] == hashlib.sha256((release / name).read_bytes()).hexdigest()
    assert subjects[ORDER.image] == IMAGE.removeprefix("sha256:")
    sources = said["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert sources[0]["digest"] == {"gitCommit": ORDER.commit}
    assert {one["name"] for one in sources[1:]} == {
        *("requirements/runtime.txt", "requirements/dev.txt"),
        *("image/packages.amd64", "image/packages.arm64"),
    }


def test_the_bill_of_the_wheel_names_its_files_and_its_requirements(release: Path) -> None:
    wheel = wheels.wheel(release, ORDER)
    bill = json.loads((release / f"{wheel.name}.cdx.json").read_bytes())
    ours, *required = sorted(bill["components"], key=lambda one: "components" not in one)
    with zipfile.ZipFile(wheel) as archive:
        there = {
            name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()
        }
    named = {
        one["name"]: one["hashes"][0]["content"] for one in ours["components"] if "hashes" in one
    }
    # A list of digests has none of its own.
    (record,) = there.keys() - named.keys()
    assert record.endswith("/RECORD")
    assert named == {name: there[name] for name in named}
    assert {"aiohttp", "msgspec"} <= {one["name"] for one in required}


@pytest.mark.needs("kubectl")
def test_the_plugin_runs_as_krew_installs_it(release: Path, tmp_path: Path) -> None:
    """By the digest that its description has, with no package of the machine's Python."""
    (architecture,) = (name for name, machine in MACHINES.items() if machine == os.uname().machine)
    said = yaml.safe_load((release / "krew-localvolume.yaml").read_text())
    platforms = {one["selector"]["matchLabels"]["arch"]: one for one in said["spec"]["platforms"]}
    assert platforms.keys() == MACHINES.keys()
    for one in platforms.values():
        archive = release / one["uri"].rpartition("/")[2]
        assert one["uri"] == ORDER.download(archive.name)
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == one["sha256"]
    mine = platforms[architecture]
    with tarfile.open(release / mine["uri"].rpartition("/")[2]) as tar:
        tar.extractall(tmp_path, filter="data")
    assert (tmp_path / mine["bin"]).stat().st_mode & 0o111
    assert (tmp_path / "LICENSE").exists()
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "python3").symlink_to(Path(sys.executable).resolve())
    path = f"{tmp_path}:{tmp_path / 'python'}:{os.defpath}"
    kubectl = shutil.which("kubectl")
    assert kubectl is not None
    for words, wanted in (
        (["--version"], (0, version(ROOT))),
        (["check-config", str(ROOT / "no-such-file")], (None, "no-such-file")),
    ):
        done = subprocess.run(
            [kubectl, "localvolume", *words],
            env={"HOME": str(tmp_path), "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert wanted[1] in done.stdout + done.stderr
        assert wanted[0] is None or done.returncode == wanted[0]


@pytest.mark.needs("kubectl")
def test_kustomize_makes_of_its_base_what_the_manifests_are(release: Path, tmp_path: Path) -> None:
    with tarfile.open(release / ORDER.named("-kustomize.tar.gz")) as tar:
        tar.extractall(tmp_path, filter="data")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(
        "resources: [../base]\ncomponents: [../monitoring]\n",
    )
    done = subprocess.run(
        ["kubectl", "kustomize", mine], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr

    def named(text: str) -> set[tuple[str, str]]:
        return {(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(text) if one}

    texts = [(release / name).read_text() for name in ("install.yaml", "monitoring.yaml")]
    assert named(done.stdout) == named("---\n".join(texts))
    image = f"{ORDER.image}:{ORDER.version}@{IMAGE}"
    assert texts[0].count(f'image: "{image}"') == done.stdout.count(f"image: {image}") == 2


@pytest.mark.needs("docker-registry", "skopeo")
def test_the_chart_is_pulled_from_a_registry_by_its_digest(release: Path, tmp_path: Path) -> None:
    """As the same bytes that are downloaded; what it installs is the image of the release."""
    said = json.loads((release / ORDER.named(".intoto.json")).read_bytes())
    (digest,) = (one["digest"]["sha256"] for one in said["subject"] if one["name"] == ORDER.charts)
    with registry(tmp_path) as address:
        place = f"{address}/charts/local-volume-provisioner"
        archive = tmp_path / "chart.oci.tar"
        shutil.copyfile(release / ORDER.named("-chart.oci.tar"), archive)
        assert pushed(archive, f"{place}:{ORDER.version}") == f"sha256:{digest}"
        words = ["--version", ORDER.version, "--plain-http"]
        helm("pull", f"oci://{place}", *words, "--destination", tmp_path)
    pulled = tmp_path / ORDER.named(".tgz")
    assert pulled.read_bytes() == (release / ORDER.named("-chart.tgz")).read_bytes()
    image = f"{ORDER.image}:{ORDER.version}@{IMAGE}"
    assert helm("template", "it", pulled).count(f'image: "{image}"') == 2
    about = yaml.safe_load(helm("show", "chart", pulled))
    assert about["annotations"]["artifacthub.io/images"].endswith(f"image: {image}\n")


def test_values_without_an_image_are_refused() -> None:
    with pytest.raises(BuildFailed, match="has 0 lines of `imageDigest`"):
        chart.of_release("image: x\n", ORDER, IMAGE)


def test_a_directory_with_other_files_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(BuildFailed, match="files that are of no release"):
        make(ROOT, tmp_path, ORDER)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
