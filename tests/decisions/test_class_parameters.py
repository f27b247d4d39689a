"""StorageClass parameters and annotations of every format: what is taken, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.config.pools import Flavor
from localvolume.config.provisioner import CSI_DRIVER, DYNAMIC_PROVISIONER
from localvolume.dynamic.classes.parameters import READERS, read_claim, read_class
from localvolume.dynamic.model import ClassFacts, Wish
from localvolume.dynamic.plan.paths import Unsafe, directory_of, owner_of
from localvolume.kube.objects import Meta, PersistentVolumeClaim, StorageClass

PATTERN = "{{ .PVC.Namespace }}/{{ .PVC.Name }}"
FLAVORS: list[Flavor] = ["native", "kutti", "local-path", "openebs"]


def storage_class(annotations: dict[str, str] | None = None, /, **parameters: str) -> StorageClass:
    # Parameters' names are written with "__" where they are no Python names.
    named = {name.replace("__", "/"): value for name, value in parameters.items()}
    meta = Meta(name="c", annotations=annotations or {})
    return StorageClass(metadata=meta, provisioner="p", parameters=named)


def read(flavor: Flavor, annotations: dict[str, str] | None = None, /, **parameters: str) -> Wish:
    found = read_class(storage_class(annotations, **parameters), flavor=flavor)
    assert isinstance(found, Wish), found
    return found


def refused(
    flavor: Flavor, annotations: dict[str, str] | None = None, /, **parameters: str
) -> list[str]:
    found = read_class(storage_class(annotations, **parameters), flavor=flavor)
    assert isinstance(found, list)
    return found


def claim(**annotations: str) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=Meta(name="data", namespace="team", annotations=annotations)
    )


def facts(flavor: Flavor, annotations: dict[str, str] | None = None) -> ClassFacts:
    return ClassFacts(object=storage_class(annotations), wish=read(flavor, annotations))


# --- native


def test_a_class_without_parameters_has_defaults() -> None:
    assert read("native") == Wish()


def test_every_native_parameter() -> None:
    assert read(
        "native",
        pool="ssd, nvme",
        fsType="xfs",
        mode="0750",
        uid="1000",
        gid="{{ .PVC.Labels.gid }}",
        pathPattern=PATTERN,
        enforce="none",
        onRemoval="overwrite",
        undoPeriod="24h",
        nodeAffinityKey="example.com/host",
    ) == Wish(
        pools=frozenset({"ssd", "nvme"}),
        fs_type="xfs",
        mode="0750",
        uid="1000",
        gid="{{ .PVC.Labels.gid }}",
        directory=PATTERN,
        enforce=False,
        overwrite=True,
        undo_seconds=86400.0,
        affinity_keys=("example.com/host",),
    )
    assert read("native", enforce="quota", onRemoval="delete", undoPeriod="0s") == Wish(
        enforce=True, overwrite=False, undo_seconds=0.0
    )


def test_only_the_csi_driver_copies_volumes() -> None:
    def found(value: str, provisioner: str) -> Wish | list[str]:
        parameters = {"fullCopies": value}
        one = StorageClass(metadata=Meta(), provisioner=provisioner, parameters=parameters)
        return read_class(one, flavor="native")

    assert found("allowed", CSI_DRIVER) == Wish(full_copies=True)
    assert found("refused", CSI_DRIVER) == Wish()
    assert found("yes", CSI_DRIVER) == [
        "parameter fullCopies: must be allowed or refused, not 'yes'"
    ]
    for value in ("allowed", "refused"):
        assert found(value, DYNAMIC_PROVISIONER) == [
            "parameter fullCopies: only volumes of csi.localvolume.dev are copied"
        ]


def test_the_filesystem_by_either_name() -> None:
    both = {"fsType": "xfs", "csi.storage.k8s.io/fstype": "xfs"}
    assert read("native", **{"csi.storage.k8s.io/fstype": "ext4"}).fs_type == "ext4"
    assert read("native", **both).fs_type == "xfs"
    assert refused("native", **(both | {"fsType": "ext4"})) == [
        "parameters fsType and csi.storage.k8s.io/fstype differ"
    ]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"pathpattern": "x"}, "parameter pathpattern is not known; did you mean pathPattern?"),
        ({"allowUnsafePathPattern": "true"}, "parameter allowUnsafePathPattern is not known"),
        ({"whatever": "x"}, "parameter whatever is not known"),
        (
            {"fsType": "ext3"},
            "parameter fsType: must be ext4 or xfs, not 'ext3'; did you mean ext4",
        ),
        ({"fsType": ""}, "parameter fsType: must be ext4 or xfs"),
        ({"pool": "a,,b"}, "parameter pool: must be names of pools"),
        ({"pool": ""}, "parameter pool: must be names of pools"),
        ({"enforce": "yes"}, "parameter enforce: must be none or quota"),
        ({"onRemoval": "shred"}, "parameter onRemoval: must be delete, overwrite or discard"),
        ({"undoPeriod": "1d"}, "parameter undoPeriod: '1d' has the unknown unit"),
        ({"undoPeriod": "-1s"}, "parameter undoPeriod: must not be negative"),
        ({"nodeAffinityKey": "a b"}, "parameter nodeAffinityKey: 'a b' is no label key"),
        ({"mode": "rwx"}, "parameter mode: 'rwx' is no mode"),
        ({"mode": "4755"}, "parameter mode: '4755' is no mode"),
        ({"uid": "-1"}, "parameter uid: '-1' is no owner"),
        ({"gid": "4294967295"}, "parameter gid: '4294967295' is no group"),
        ({"uid": "{{ .PVC.Uid }}"}, "parameter uid: '{{ .PVC.Uid }}' is not known"),
        ({"pathPattern": ""}, "parameter pathPattern: is empty"),
        ({"pathPattern": "{{ .PVName"}, 'parameter pathPattern: has "{{" without'),
        ({"pathPattern": f"{PATTERN}/../../etc"}, "parameter pathPattern: "),
        ({"pathPattern": f"/{PATTERN}"}, "parameter pathPattern: "),
        ({"pathPattern": ".localvolume/trash"}, "parameter pathPattern: "),
        ({"pathPattern": "a//b"}, "parameter pathPattern: "),
        ({"pathPattern": f"lost+found/{PATTERN}"}, "parameter pathPattern: "),
        ({"pathPattern": "/".join([PATTERN, *["x" * 200] * 11])}, "parameter pathPattern: "),
    ],
)
def test_what_is_wrong_is_named(parameters: dict[str, str], reason: str) -> None:
    (problem,) = refused("native", **parameters)
    assert problem.startswith(reason)


def test_all_that_is_wrong_is_named_at_once() -> None:
    assert len(refused("native", a="1", mode="x", enforce="x", fsType="x")) == 4


# --- local-path


def test_local_paths_parameters() -> None:
    assert read(
        "local-path",
        nodePath="/data/ssd/",
        pathPattern=f"{PATTERN}/",
        nodeAffinityKey="example.com/host",
        userPattern="1000",
        groupPattern="2000",
        permPattern="0700",
    ) == Wish(
        host_dirs=frozenset({"/data/ssd"}),
        directory=f"{PATTERN}/",
        affinity_keys=("example.com/host",),
        uid="1000",
        gid="2000",
        mode="0700",
        source="hostPath",
    )
    assert read("local-path") == Wish(source="hostPath")
    assert read("local-path", enforce="quota", onRemoval="overwrite", undoPeriod="1h") == Wish(
        source="hostPath", enforce=True, overwrite=True, undo_seconds=3600.0
    )


def test_owner_and_mode_of_a_claim() -> None:
    """R42."""
    wish = read("local-path", userPattern="1000", groupPattern="2000", permPattern="0700")
    owner = owner_of(wish, claim(), "pvc-1")
    assert (owner.mode, owner.uid, owner.gid) == (0o700, 1000, 2000)


def test_some_of_them_may_be_annotations() -> None:
    annotations = {"userPattern": "1", "groupPattern": "2", "permPattern": "0750"}
    wish = read("local-path", annotations)
    assert (wish.uid, wish.gid, wish.mode) == ("1", "2", "0750")
    assert read("local-path", annotations, userPattern="7").uid == "7"
    assert read("local-path", {"nodePath": "/x", "pathPattern": "x"}) == Wish(source="hostPath")
    assert refused("local-path", {"permPattern": "rwx"})[0].startswith("annotation permPattern: ")
    assert read("native", annotations) == Wish()


@pytest.mark.parametrize("by", ["parameter", "annotation"])
def test_an_unsafe_pattern_is_allowed_either_way(by: str) -> None:
    """R43, R44."""
    free = "{{ .PVC.Namespace }}_{{ .PVC.Name }}/etc"
    if by == "parameter":
        wish = read("local-path", pathPattern=free, allowUnsafePathPattern="true")
    else:
        wish = read("local-path", {"allowUnsafePathPattern": "true"}, pathPattern=free)
    assert wish.unsafe_directory
    assert directory_of(wish, "local-path", claim(), "pvc-1") == "team_data/etc"
    strict = read("local-path", pathPattern=free)
    with pytest.raises(Unsafe, match="must begin with"):
        directory_of(strict, "local-path", claim(), "pvc-1")


def test_the_parameter_counts_more_than_the_annotation() -> None:
    annotations = {"allowUnsafePathPattern": "true"}
    assert not read("local-path", annotations, allowUnsafePathPattern="false").unsafe_directory


def test_even_an_unsafe_pattern_never_climbs() -> None:
    """R45: what upstream refuses by default, and what it lets through when told to."""
    for pattern in ("/opt/../x/../etc/", f"{PATTERN}/../../../etc", "../{{ .PVName }}"):
        for unsafe in ("true", "false"):
            (problem,) = refused("local-path", pathPattern=pattern, allowUnsafePathPattern=unsafe)
            assert problem.startswith("parameter pathPattern: ")


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"nodepath": "/x"}, "did you mean nodePath?"),
        ({"nodePath": "data"}, "parameter nodePath: must be an absolute path"),
        ({"nodePath": "/"}, "parameter nodePath: must not be the root"),
        ({"allowUnsafePathPattern": "yes"}, "must be true or false, not 'yes'"),
        ({"fsType": "xfs"}, "parameter fsType is not known"),
        ({"pool": "x"}, "parameter pool is not known"),
    ],
)
def test_what_is_wrong_in_local_paths_is_named(parameters: dict[str, str], reason: str) -> None:
    (problem,) = refused("local-path", **parameters)
    assert reason in problem


# --- the type of the volume


def test_local_paths_types() -> None:
    """R33, R34, R35."""
    assert read_claim(claim(), facts("local-path")) == "hostPath"
    assert read_claim(claim(volumeType="local"), facts("local-path")) == "local"
    by_class = facts("local-path", {"defaultVolumeType": "local"})
    assert read_claim(claim(), by_class) == "local"
    assert read_claim(claim(volumeType="hostPath"), by_class) == "hostPath"
    assert read_claim(claim(volumeType="Local"), facts("local-path")) == "local"


def test_other_types_are_refused() -> None:
    for other in ("", "nfs", "local "):
        with pytest.raises(Unsafe, match="annotation volumeType must be local or hostPath"):
            read_claim(claim(volumeType=other), facts("local-path"))
        (problem,) = refused("local-path", {"defaultVolumeType": other})
        assert problem.startswith("annotation defaultVolumeType: must be local or hostPath")


@pytest.mark.parametrize("flavor", ["native", "kutti", "openebs"])
def test_elsewhere_claims_have_no_choice(flavor: Flavor) -> None:
    annotations = {"defaultVolumeType": "hostPath"}
    assert read_claim(claim(volumeType="hostPath"), facts(flavor, annotations)) == "local"


# --- kutti, OpenEBS


def test_kutti_takes_no_parameters() -> None:
    assert read("kutti") == Wish(mode="0755")
    assert refused("kutti", mode="0777") == [
        "parameter mode is not known: classes of this provisioner take none"
    ]


def test_openebs_says_it_in_an_annotation() -> None:
    text = """
      - {name: BasePath, value: /data/}
      - {name: NodeAffinityLabels, list: [a, b]}
      - {name: XFSQuota, enabled: "true", data: {hardLimitGrace: "10%"}}
      - {name: FilePermissions, enabled: "true", data: {mode: "0750", UID: "1", GID: "2"}}
    """
    assert read("openebs", {"cas.openebs.io/config": text}, onRemoval="overwrite") == Wish(
        host_dirs=frozenset({"/data"}),
        affinity_keys=("a", "b"),
        enforce=True,
        quota_graces=(None, 10.0),
        mode="0750",
        uid="1",
        gid="2",
        overwrite=True,
    )
    assert read("openebs") == Wish()
    assert read("native", {"cas.openebs.io/config": text}) == Wish()


def test_an_openebs_class_without_base_path_is_at_the_agents_default() -> None:
    plain = storage_class()
    wish = read_class(plain, flavor="openebs", openebs_base_path="/var/openebs/local")
    assert wish == Wish(host_dirs=frozenset({"/var/openebs/local"}))
    own = storage_class({"cas.openebs.io/config": "[{name: BasePath, value: /x}]"})
    wish = read_class(own, flavor="openebs", openebs_base_path="/var/openebs/local")
    assert wish == Wish(host_dirs=frozenset({"/x"}))


def test_an_openebs_class_may_only_choose_a_base_path_of_the_agents() -> None:
    for path, allowed in (("/data/", True), ("/etc", False), ("/data/x", False), ("/dat", False)):
        text = f"[{{name: BasePath, value: {path}}}]"
        found = read_class(
            storage_class({"cas.openebs.io/config": text}),
            flavor="openebs",
            openebs_base_paths=("/var/openebs/local", "/data"),
        )
        if allowed:
            assert found == Wish(host_dirs=frozenset({"/data"}))
        else:
            assert isinstance(found, list)
            assert f"BasePath '{path}' is none of the agents' base paths (/data, /var/" in found[0]


def test_openebs_problems_are_joined() -> None:
    def mode(value: str) -> dict[str, str]:
        data = f"{{mode: '{value}'}}"
        return {
            "cas.openebs.io/config": f"[{{name: FilePermissions, enabled: true, data: {data}}}]"
        }

    unknown, symbolic = refused("openebs", mode("g+s"), BasePath="/x")
    assert unknown == "parameter BasePath is not known"
    assert symbolic.startswith("FilePermissions.data.mode: 'g+s' is no mode: it must be an o")
    assert "is no number" in refused("openebs", mode("{{ .PVName }}"))[0]
    assert len(refused("openebs", {"cas.openebs.io/config": "{"}, x="y")) == 2


SOME = ["", "0", "0777", "quota", "1h", "/a", "../x", PATTERN, "{{ .PVName }}", "{{", "xfs", "a/b"]
WORDS = st.sampled_from(SOME) | st.text(max_size=12)


@given(st.sampled_from(FLAVORS), st.data())
def test_any_parameters_are_read_or_refused(flavor: Flavor, data: Any) -> None:
    names = st.sampled_from([*READERS["native"], *READERS["local-path"]]) | st.text(max_size=5)
    given_ = data.draw(st.dictionaries(names, WORDS, max_size=5))
    annotations = data.draw(
        st.dictionaries(names | st.just("defaultVolumeType"), WORDS, max_size=3)
    )
    meta = Meta(name="c", annotations=annotations)
    found = read_class(StorageClass(metadata=meta, parameters=given_), flavor=flavor)
    if isinstance(found, list):
        assert found
        assert all(len(problem.splitlines()) == 1 for problem in found)
    else:
        assert given_.keys() <= READERS[flavor].keys()
