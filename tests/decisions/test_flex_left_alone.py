"""The roles of static and dynamic volumes leave what is served through FlexVolume alone."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import is_dynamic, is_flexvolume, is_static


def volume(provisioner: str, source: dict[str, Any]) -> PersistentVolume:
    annotations = {marks.PROVISIONED_BY_ANNOTATION: provisioner} if provisioner else {}
    body = {"metadata": {"name": "pvc-1", "annotations": annotations}, "spec": source}
    return msgspec.convert(body, PersistentVolume)


@pytest.mark.parametrize(
    "provisioner",
    ["", *sorted(marks.FLEX_DRIVERS), marks.DYNAMIC_PROVISIONER, "local-volume-provisioner-n1"],
)
def test_one_with_the_source_is_neither_static_nor_dynamic(provisioner: str) -> None:
    found = volume(provisioner, {"flexVolume": {"driver": marks.FLEX_DRIVER}})
    assert is_flexvolume(found)
    assert not is_static(found)
    assert not is_dynamic(found)


def test_all_others_are_one_of_the_two() -> None:
    local = {"local": {"path": "/mnt/a"}}
    assert is_static(volume("local-volume-provisioner-n1", local))
    assert is_static(volume("", local))
    assert is_dynamic(volume(marks.DYNAMIC_PROVISIONER, local))
    assert is_dynamic(volume("rancher.io/local-path", {"hostPath": {"path": "/opt/a"}}))


def test_an_agent_without_flexvolume_carries_none_of_it() -> None:
    script = "import sys, localvolume.agent.agent; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    loaded = done.stdout.splitlines()
    assert "localvolume.agent.agent" in loaded
    assert not [name for name in loaded if name.startswith("localvolume.flexvolume")]
    assert "localvolume.config.foreign.elastic" not in loaded
