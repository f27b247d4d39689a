"""The releases of Kubernetes that `make versions` tests on: what each pins, and what is refused."""

import re
from pathlib import Path

import pytest

from localvolume_lab.controlplane.assets import (
    ComponentsMissing,
    build_directory,
    kubernetes_version,
    pinned,
)
from localvolume_lab.controlplane.node import dns
from tests.versions import __main__ as versions

RELEASES = versions.releases()


def test_they_are_listed_from_the_oldest() -> None:
    assert len(RELEASES) >= 2
    assert sorted(RELEASES, key=lambda name: int(name.removeprefix("v1."))) == RELEASES


@pytest.mark.parametrize("release", RELEASES)
def test_every_module_of_kubernetes_is_of_that_release(release: str) -> None:
    text = (versions.HERE / release / "go.mod").read_text()
    version = kubernetes_version(versions.HERE / release)
    assert version.startswith(f"{release}.")
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) (\S+)$", text, re.MULTILINE)
    assert len(replaced) > 20
    expected = f"v0{version.removeprefix('v1')}"
    assert [one for one in replaced if one[0] != one[1] or one[2] != expected] == []


@pytest.mark.parametrize("module", ["k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"])
def test_the_name_server_has_the_modules_of_the_components(module: str) -> None:
    """So Go need not compile them a second time."""
    assert pinned(module, dns.SOURCE) == f"v0{kubernetes_version().removeprefix('v1')}"


def test_a_module_that_is_not_required_is_told() -> None:
    with pytest.raises(ComponentsMissing, match=r"coredns/go\.mod requires no k8s\.io/kubernetes"):
        pinned("k8s.io/kubernetes", dns.SOURCE)


@pytest.mark.parametrize("release", RELEASES)
def test_each_has_a_build_of_its_own(release: str, tmp_path: Path) -> None:
    place = build_directory(versions.source_of(release, tmp_path))
    assert place.name.startswith(f"{release}.")
    assert place != build_directory()


@pytest.mark.parametrize("release", RELEASES)
def test_what_differs_is_a_test_that_is_there(release: str) -> None:
    for test in versions.differing(release):
        path, name = test.split("::")
        function = name.partition("[")[0]
        assert f"def {function}(" in (versions.HERE.parents[1] / path).read_text()


def test_one_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert versions.main(["v1.1"]) == 2
    assert "and no v1.1" in capsys.readouterr().err
