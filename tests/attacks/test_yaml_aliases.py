"""A few kilobytes of YAML aliases that stand for gigabytes: refused before they are gone through.

Who writes them may set a class's selector, an annotation of a StorageClass, or a kubeconfig that
somebody takes over. Each text is small, and would keep one of our processes busy for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from localvolume import yamlaliases
from localvolume.cli.main import main
from localvolume.config import loading
from localvolume.config.foreign import lvmd, openebs
from localvolume.config.model import ConfigurationInvalid
from localvolume.config.syntax.document import Unreadable, compose
from localvolume.kube.access.auth import find_access
from localvolume.kube.errors import AccessInvalid
from localvolume_lab.sandbox.http.bodies import parsed
from localvolume_lab.sandbox.refusals import Refusal

SECONDS = 5.0
"""CPU for what took half a minute, or would not have ended."""

TOO_MUCH = f"repeats more than {yamlaliases.MOST} characters by aliases"


def selector(times: int) -> str:
    """A list of values in a list of expressions in a list of terms, each `times` long."""
    values = ",".join(["a"] * times)
    return (
        "fast:\n  hostDir: /mnt/fast\n  mountDir: /mnt/fast\n  selector:\n"
        f"  - matchExpressions: &e\n    - &r {{key: k, operator: In, values: [{values}]}}\n"
        + "    - *r\n" * times
        + "  - &t {matchExpressions: *e}\n"
        + "  - *t\n" * times
    )


def doubling() -> str:
    """Each line is twice the one before it: 2**60 of the first."""
    lines = ["a0: &a0 {k: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 61)]
    return "\n".join(lines)


def in_time(act: Callable[[], object]) -> None:
    before = time.process_time()
    act()
    assert time.process_time() - before < SECONDS


def test_a_selector_of_three_kilobytes_is_refused_at_once(tmp_path: Path) -> None:
    text = selector(150)  # three million values
    assert len(text) < 3_000
    (tmp_path / "storageClassMap").write_text(text)

    def load() -> None:
        with pytest.raises(ConfigurationInvalid) as caught:
            loading.load(str(tmp_path))
        (problem,) = caught.value.problems
        assert problem.file == "storageClassMap"
        assert TOO_MUCH in problem.reason
        # The first term repeats its expressions; that term once more is too much.
        assert 'like "*t" in line 158' in problem.reason

    in_time(load)


def test_check_config_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "storageClassMap").write_text(selector(150))
    assert main(["check-config", str(tmp_path)]) == 1
    assert TOO_MUCH in capsys.readouterr().out


def test_text_that_is_repeated_counts_by_its_length() -> None:
    with pytest.raises(Unreadable, match=TOO_MUCH):
        compose(f"a: &a {'x' * 10_000}\nb: [{', '.join(['*a'] * 11)}]")


@pytest.mark.parametrize("text", ["&a [*a]", "a: &a {b: [1, {c: *a}]}", "&x {<<: *x, a: 1}"])
def test_what_holds_itself_is_refused_as_upstream_does(text: str) -> None:
    with pytest.raises(Unreadable, match="within what it stands for"):
        compose(text)


def test_aliases_as_people_use_them_are_read(tmp_path: Path) -> None:
    (tmp_path / "storageClassMap").write_text(selector(20))
    assert not loading.load(str(tmp_path)).warnings


def test_a_long_text_without_aliases_is_read() -> None:
    node = compose(f"a: [{', '.join(['x' * 60] * 10_000)}]")
    assert node is not None


def test_the_other_tools_configurations_have_the_same_bound() -> None:
    def read() -> None:
        with pytest.raises(ConfigurationInvalid, match=TOO_MUCH):
            lvmd.read("lvmd.yaml", doubling())
        found = openebs.read_class({"cas.openebs.io/config": doubling()})
        assert isinstance(found, list)
        assert TOO_MUCH in found[0]

    in_time(read)


def test_a_kubeconfig_has_it_too(tmp_path: Path) -> None:
    # The loader would make 2**20 pairs of this by itself, and more with every line.
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("\n".join(doubling().splitlines()[:21]))

    def read() -> None:
        with pytest.raises(AccessInvalid, match=TOO_MUCH) as caught:
            find_access(str(kubeconfig), environ={})
        assert str(kubeconfig) in str(caught.value)

    in_time(read)


def test_so_has_what_is_applied_to_the_sandbox() -> None:
    text = "\n".join(doubling().splitlines()[:21]).encode()

    def read() -> None:
        with pytest.raises(Refusal, match=TOO_MUCH):
            parsed(text, is_yaml=True)

    in_time(read)
