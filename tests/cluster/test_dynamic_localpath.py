"""In local-path's place: its volume types, patterns, affinity keys and paths, and its config.json.

The ids are those of tests/behaviours.toml: R33 to R46, local-path's own end-to-end tests.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_dynamic import DynamicLab, MadePool, Volume
from tests.cluster.support_replaced import (
    affinity,
    config_json,
    in_place_of,
    label_node,
    node_paths,
    others,
    removed,
    root,
    scheduled,
    stat_of,
    unserved,
)
from tests.suite.names import HOSTNAME, LOCAL_PATH, PROVISIONED_BY, SELECTED

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

OWN = "{{ .PVC.Namespace }}/{{ .PVC.Name }}"
FOLDER = "{{ .PVC.Annotations.folder }}"


def _class(lab: DynamicLab, kind: str = "path", **fields: Any) -> str:
    return lab.storage_class(kind, provisioner=LOCAL_PATH, waits=True, **fields)


def _start(lab: DynamicLab) -> MadePool:
    pool = root(lab)
    lab.start(others=in_place_of(lab, "local-path", pool))
    return pool


def _made(lab: DynamicLab, cls: str, **fields: Any) -> Volume:
    return lab.made(scheduled(lab, cls, **fields))


# --- what the volume is ------------------------------------------------------------------------


def test_by_default_it_is_a_hostpath_that_must_exist(dynamic: DynamicLab) -> None:
    """R33. Type Directory, where upstream has DirectoryOrCreate: facts, section 8, 10."""
    pool = _start(dynamic)
    claim = scheduled(dynamic, _class(dynamic))
    volume = dynamic.made(claim)
    meta = claim["metadata"]
    place = pool.directory / f"pvc-{meta['uid']}_{meta['namespace']}_{meta['name']}"
    assert volume["spec"]["hostPath"] == {"path": str(place), "type": "Directory"}
    assert stat_of(place) == "777 0 0"
    notes = volume["metadata"]["annotations"]
    assert notes["local.path.provisioner/selected-node"] == dynamic.node
    assert notes[PROVISIONED_BY] == LOCAL_PATH
    assert affinity(volume) == [(HOSTNAME, [dynamic.node])]
    removed(dynamic, claim, volume, pool)


def test_a_claim_may_ask_for_the_type_local(dynamic: DynamicLab) -> None:
    """R34; and against what its class has for a default."""
    pool = _start(dynamic)
    volume = _made(dynamic, _class(dynamic), annotations={"volumeType": "local"})
    assert Path(volume["spec"]["local"]["path"]).parent == pool.directory
    assert "hostPath" not in volume["spec"]
    by_default = _class(dynamic, "local", annotations={"defaultVolumeType": "local"})
    volume = _made(dynamic, by_default, annotations={"volumeType": "hostPath"})
    assert volume["spec"]["hostPath"]["type"] == "Directory"


def test_a_class_may_have_the_type_local_for_a_default(dynamic: DynamicLab) -> None:
    """R35"""
    _start(dynamic)
    volume = _made(dynamic, _class(dynamic, annotations={"defaultVolumeType": "local"}))
    assert "local" in volume["spec"]


def test_a_type_that_is_none_is_refused(dynamic: DynamicLab) -> None:
    pool = _start(dynamic)
    claim = scheduled(dynamic, _class(dynamic), annotations={"volumeType": "nfs"})
    unserved(dynamic, claim, "annotation volumeType must be local or hostPath")
    assert pool.inside() == []


def test_only_the_node_that_was_selected_serves_it(dynamic: DynamicLab) -> None:
    """R36, the agent's side: the scheduler has chosen by the pod's affinity."""
    pool = _start(dynamic)
    cls = _class(dynamic)
    other = dynamic.claim(cls, annotations={"volume.kubernetes.io/selected-node": "another"})
    volume = _made(dynamic, cls)
    dynamic.settle()
    assert dynamic.volume_of(other) is None
    assert pool.inside() == [dynamic.path_of(volume).name]


def test_one_pod_alone_may_have_it(dynamic: DynamicLab) -> None:
    """R37"""
    _start(dynamic)
    volume = _made(
        dynamic,
        _class(dynamic),
        accessModes=["ReadWriteOncePod"],
        annotations={"volumeType": "local"},
    )
    assert volume["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_the_affinity_is_by_the_label_of_the_class(dynamic: DynamicLab) -> None:
    """R40, and what upstream got wrong then (facts, section 8, 6): the data goes with the claim."""
    label_node(dynamic, **{"example.com/rack": "r7"})
    pool = _start(dynamic)
    cls = _class(dynamic, parameters={"nodeAffinityKey": "example.com/rack"})
    claim = scheduled(dynamic, cls)
    volume = dynamic.made(claim)
    assert affinity(volume) == [("example.com/rack", ["r7"])]
    removed(dynamic, claim, volume, pool)


def test_a_node_without_the_label_gives_the_claim_back(dynamic: DynamicLab) -> None:
    """R40 where the label is missing: an empty value would match no node, ever."""
    pool = _start(dynamic)
    cls = _class(dynamic, parameters={"nodeAffinityKey": "example.com/rack"})
    claim = scheduled(dynamic, cls)
    unserved(dynamic, claim, "has no label example.com/rack; another node is to be chosen")
    assert pool.inside() == []


# --- where it lies -----------------------------------------------------------------------------


def test_the_pattern_says_where_it_lies(dynamic: DynamicLab) -> None:
    """R41; what was made on the way goes with the last volume in it."""
    pool = _start(dynamic)
    claim = scheduled(dynamic, _class(dynamic, parameters={"pathPattern": f"{OWN}/"}))
    volume = dynamic.made(claim)
    name = claim["metadata"]["name"]
    assert dynamic.path_of(volume) == pool.directory / "default" / name
    assert stat_of(pool.directory / "default") == "755 0 0"
    removed(dynamic, claim, volume, pool)
    assert pool.inside() == []


def test_mode_and_owner_are_those_of_the_class(dynamic: DynamicLab) -> None:
    """R42, which took a setup script of one's own upstream."""
    _start(dynamic)
    patterns = {"permPattern": "0700", "userPattern": "1000", "groupPattern": "2000"}
    volume = _made(dynamic, _class(dynamic, parameters=patterns))
    assert stat_of(dynamic.path_of(volume)) == "700 1000 2000"
    volume = _made(dynamic, _class(dynamic, "noted", annotations=patterns))
    assert stat_of(dynamic.path_of(volume)) == "700 1000 2000"


def test_the_claim_may_say_who_owns_it_but_not_more_than_that(dynamic: DynamicLab) -> None:
    """R42 with a template over the claim's annotations, which are the tenant's."""
    pool = _start(dynamic)
    cls = _class(dynamic, parameters={"userPattern": "{{ .PVC.Annotations.uid }}"})
    volume = _made(dynamic, cls, annotations={"uid": "1234"})
    assert stat_of(dynamic.path_of(volume)) == "777 1234 0"
    before = pool.inside()
    claim = scheduled(dynamic, cls, annotations={"uid": "0; rm -rf /"})
    unserved(dynamic, claim, "it must be a number")
    claim = scheduled(dynamic, cls)
    unserved(dynamic, claim, "uid")
    assert pool.inside() == before


@pytest.mark.parametrize("by", ["parameter", "annotation"])
def test_a_class_may_allow_a_pattern_without_the_claims_name(dynamic: DynamicLab, by: str) -> None:
    """R43 by the class's parameter, R44 by its annotation: lexically checked all the same."""
    pool = _start(dynamic)
    allowed = {"allowUnsafePathPattern": "true"}
    cls = _class(
        dynamic,
        parameters={"pathPattern": "shared/{{ .PVC.Name }}"}
        | (allowed if by == "parameter" else {}),
        annotations=allowed if by == "annotation" else {},
    )
    claim = scheduled(dynamic, cls)
    volume = dynamic.made(claim)
    assert dynamic.path_of(volume) == pool.directory / "shared" / claim["metadata"]["name"]
    removed(dynamic, claim, volume, pool)


def test_without_leave_a_pattern_must_begin_with_the_claims_name(dynamic: DynamicLab) -> None:
    """R43 turned round."""
    pool = _start(dynamic)
    cls = _class(dynamic, parameters={"pathPattern": "shared/{{ .PVC.Name }}"})
    unserved(dynamic, scheduled(dynamic, cls), "which does not begin with")
    assert pool.inside() == []


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize(
    "folder", ["../../../../etc", "../other-tenant", "a/../../b", "/etc", ".localvolume/trash"]
)
def test_no_claim_leaves_its_place(dynamic: DynamicLab, folder: str, unsafe: bool) -> None:
    """R45 (CVE-2025-62878): an Event says why, the claim stays Pending, nothing is made."""
    pool = _start(dynamic)
    pattern = FOLDER if unsafe else f"{OWN}/{FOLDER}"
    parameters = {"pathPattern": pattern, "allowUnsafePathPattern": str(unsafe).lower()}
    cls = _class(dynamic, parameters=parameters)
    before = set(os.listdir(dynamic.directory))
    claim = scheduled(dynamic, cls, annotations={"folder": folder})
    if not unsafe and folder == ".localvolume/trash":
        # Below its own directory that name is as good as any.
        assert dynamic.path_of(dynamic.made(claim)).is_relative_to(pool.directory / "default")
        return
    unserved(dynamic, claim, "the path pattern makes")
    assert pool.inside() == []
    assert set(os.listdir(dynamic.directory)) == before


def test_a_class_that_can_only_lead_out_is_refused_as_a_whole(dynamic: DynamicLab) -> None:
    """R45, by the administrator's own mistake: /ready says so."""
    _start(dynamic)
    parameters = {"pathPattern": "../{{ .PVC.Name }}", "allowUnsafePathPattern": "true"}
    cls = _class(dynamic, parameters=parameters)
    unserved(dynamic, scheduled(dynamic, cls), f"class {cls}: parameter pathPattern")
    status, text = dynamic.http("/ready")
    assert status == 500
    assert "pathPattern" in text


def test_two_claims_never_get_the_same_place(dynamic: DynamicLab) -> None:
    """Facts, section 6, #504: where a pattern leads two claims to one directory."""
    pool = _start(dynamic)
    parameters = {"pathPattern": "one-for-all", "allowUnsafePathPattern": "true"}
    cls = _class(dynamic, parameters=parameters)
    volume = _made(dynamic, cls)
    unserved(dynamic, scheduled(dynamic, cls), "is another volume's")
    assert pool.inside() == [dynamic.path_of(volume).name]


# --- config.json -------------------------------------------------------------------------------


def test_the_class_chooses_one_of_the_paths(dynamic: DynamicLab) -> None:
    """Parameter nodePath, which must be a listed one."""
    first, second = root(dynamic, "first"), root(dynamic, "second")
    dynamic.start(others=others(local_path=config_json(dynamic, node_paths(first, second))))
    for number, pool in enumerate((second, first)):
        cls = _class(dynamic, f"at{number}", parameters={"nodePath": str(pool.directory)})
        assert dynamic.path_of(_made(dynamic, cls)).parent == pool.directory
    cls = _class(dynamic, "nowhere", parameters={"nodePath": str(dynamic.directory / "third")})
    unserved(dynamic, scheduled(dynamic, cls), f"no pool of class {cls} is configured")
    assert len(first.inside()) == len(second.inside()) == 1


def test_a_node_without_paths_gives_claims_back(dynamic: DynamicLab) -> None:
    """`paths: []`; upstream let the pod wait for ever (facts, section 6, #163)."""
    body = {"nodePathMap": [{"node": dynamic.node, "paths": []}]}
    dynamic.start(others=others(local_path=config_json(dynamic, body)))
    claim = scheduled(dynamic, _class(dynamic))
    unserved(dynamic, claim, f"has no path for node {dynamic.node}; another node is to be chosen")
    # It is said before it is done.
    dynamic.until(
        lambda: dynamic.read_claim(claim),
        lambda found: found and SELECTED not in found["metadata"]["annotations"],
    )


def test_each_class_has_its_own_paths(dynamic: DynamicLab) -> None:
    """storageClassConfigs; a class that it does not name has none."""
    pool = root(dynamic)
    named, unnamed = _class(dynamic, "named"), _class(dynamic, "unnamed")
    body = {"storageClassConfigs": {named: node_paths(pool)}}
    dynamic.start(others=others(local_path=config_json(dynamic, body)))
    assert dynamic.path_of(_made(dynamic, named)).parent == pool.directory
    unserved(dynamic, scheduled(dynamic, unnamed), "storageClassConfigs does not name the class")


def test_an_edit_takes_effect_and_an_invalid_one_does_not(dynamic: DynamicLab) -> None:
    """Without a poll, and with an Event on the Node (facts, section 8, 8)."""
    first, second = root(dynamic, "first"), root(dynamic, "second")
    config = config_json(dynamic, node_paths(first))
    dynamic.start(others=others(local_path=config))
    cls = _class(dynamic)
    old = scheduled(dynamic, cls)
    volume = dynamic.made(old)
    assert dynamic.path_of(volume).parent == first.directory

    config_json(dynamic, {**node_paths(second), "nodePathMaps": []})
    dynamic.event(dynamic.node, "ConfigurationInvalid", "nodePathMaps: unknown key")
    assert dynamic.path_of(_made(dynamic, cls)).parent == first.directory

    config_json(dynamic, node_paths(second))
    dynamic.event(dynamic.node, "ConfigurationChanged")
    # A look under way still has the configuration that it began with.
    dynamic.settle()
    assert dynamic.path_of(_made(dynamic, cls)).parent == second.directory

    # What was made before lies in no directory of the configuration any more: it is not touched.
    dynamic.delete(old)
    # It was held in silence while it was in use, and is now held aloud for the same reason.
    dynamic.event(volume["metadata"]["name"], "VolumeFailedDelete", "is not configured")
    assert dynamic.path_of(volume).is_dir()
    config_json(dynamic, node_paths(first, second))
    dynamic.gone(volume)


def test_scripts_and_shared_filesystems_are_refused_by_name(dynamic: DynamicLab) -> None:
    """R46's shared filesystem, and helper scripts: at the start, nothing is served until then."""
    pool = root(dynamic)
    config = config_json(dynamic, {"sharedFileSystemPath": str(pool.directory)})
    dynamic.start(others=others(local_path=config), wait=False)
    dynamic.event(dynamic.node, "ConfigurationInvalid", "sharedFileSystemPath: is not served")
    (config / "setup").write_text("#!/bin/sh\nmkdir -p $VOL_DIR\nxfs_quota -x -c project\n")
    config_json(dynamic, node_paths(pool))
    dynamic.event(dynamic.node, "ConfigurationInvalid", "nothing that a configuration brings is")
    cls = _class(dynamic)
    claim = scheduled(dynamic, cls)
    assert dynamic.http("/ready")[0] == 500
    (config / "setup").write_text('#!/bin/sh\nset -eu\nmkdir -m 0777 -p "$VOL_DIR"\n')
    dynamic.made(claim)
