"""Whatever classes and tenants write, a volume has its own place below its pool (R41 to R45)."""

import itertools
import os
import posixpath
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from localvolume.config.pools import Flavor, PoolConfig
from localvolume.dynamic.classes.parameters import read_class
from localvolume.dynamic.model import Wish
from localvolume.dynamic.plan.paths import (
    Unsafe,
    conflicts,
    directory_of,
    is_surely_elsewhere,
    owner_of,
    read_id,
    read_mode,
    relative_place,
)
from localvolume.kube.objects import (
    HostPathSource,
    LocalSource,
    Meta,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PVSpec,
    StorageClass,
    VolumeNodeAffinity,
)
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.marks import HOSTNAME_LABEL, NODE_LABEL, POOL_ANNOTATION
from tests.suite.chance import examples

POOL = "/mnt/pool"
OWN = "{{ .PVC.Namespace }}/{{ .PVC.Name }}"
FLAVORS: list[Flavor] = ["native", "kutti", "local-path", "openebs"]


def claim(
    namespace: str = "team",
    name: str = "data",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> PersistentVolumeClaim:
    meta = Meta(
        name=name, namespace=namespace, uid="u", labels=labels or {}, annotations=annotations or {}
    )
    return PersistentVolumeClaim(metadata=meta)


def place(pattern: str, *, unsafe: bool = False, **of_claim: Any) -> str:
    wish = Wish(directory=pattern, unsafe_directory=unsafe)
    return directory_of(wish, "local-path", claim(**of_claim), "pvc-1")


def assert_below_the_pool(path: str) -> None:
    """Asked of the standard library, and not of what is tested."""
    full = f"{POOL}/{path}"
    assert posixpath.normpath(full) == full
    assert posixpath.commonpath([POOL, full]) == POOL
    assert full != POOL
    assert not posixpath.relpath(full, POOL).startswith((".localvolume", ".."))
    assert "\0" not in path
    assert all(0 < len(os.fsencode(part)) <= 255 for part in path.split("/"))


def is_apart(one: str, two: str) -> bool:
    common = posixpath.commonpath([f"/{one}", f"/{two}"])
    return common not in (f"/{one}", f"/{two}")


# --- the default names


def test_the_provisioners_own_names() -> None:
    for flavor in FLAVORS:
        expected = "pvc-1_team_data" if flavor == "local-path" else "pvc-1"
        assert directory_of(Wish(), flavor, claim(), "pvc-1") == expected


def test_long_names_are_cut_and_still_differ() -> None:
    """A claim's name may have 253 characters, so that local-path's had more than a directory's."""
    long = claim("n" * 63, "c" * 253)
    one = directory_of(Wish(), "local-path", long, "pvc-1")
    two = directory_of(Wish(), "local-path", long, "pvc-2")
    assert len(one) == 255
    assert one != two
    assert_below_the_pool(one)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b", "A", ".localvolume", "a b"])
@pytest.mark.parametrize("which", ["namespace", "name", "pv"])
def test_no_bad_name_gets_a_place(name: str, which: str) -> None:
    namespace, claim_name, pv = {
        "namespace": (name, "data", "pvc-1"),
        "name": ("team", name, "pvc-1"),
        "pv": ("team", "data", name),
    }[which]
    for wish in (Wish(), Wish(directory=OWN), Wish(directory=OWN, unsafe_directory=True)):
        with pytest.raises(Unsafe, match="is no name of"):
            directory_of(wish, "local-path", claim(namespace, claim_name), pv)


# --- patterns


def test_patterns_at_and_below_the_claims_own_place() -> None:
    """R41."""
    assert place(f"{OWN}/") == "team/data"
    assert place(OWN) == "team/data"
    assert place(OWN + "/{{ .PVName }}") == "team/data/pvc-1"
    assert place("team/data/x") == "team/data/x"


@pytest.mark.parametrize(
    "pattern",
    [
        "{{ .PVName }}",
        "{{ .PVC.Name }}/{{ .PVC.Namespace }}",
        "{{ .PVC.Namespace }}",
        "{{ .PVC.Namespace }}/{{ .PVC.Name }}2",
        "{{ .PVC.Namespace }}-{{ .PVC.Name }}",
        "other/data/x",
        "{{ .PVC.Annotations.dir }}",
    ],
)
def test_others_need_to_be_allowed(pattern: str) -> None:
    with pytest.raises(Unsafe, match="must begin with"):
        place(pattern, annotations={"dir": "team/database"})
    assert place(pattern, unsafe=True, annotations={"dir": "team/database"})


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize(
    "value",
    ["..", "../..", "../../../etc", "a/../../../../etc/cron.d", "/etc", "./x", "x//y", "x/./y",
     ".", "", "x/", "/", "x\0y", "x\ny", "x\x7f", "x\u202ey", "\ud800", "x" * 256, "é" * 128,
     "/".join(["x" * 100] * 21), "..\\..", "%2e%2e/%2e%2e"],
)  # fmt: skip
def test_a_tenants_annotation_never_climbs(value: str, unsafe: bool) -> None:
    """CVE-2025-62878: a path from a pattern that leaves the directory of the provisioner. R45."""
    pattern = OWN + "/{{ .PVC.Annotations.dir }}/x"
    try:
        result = place(pattern, unsafe=unsafe, annotations={"dir": value})
    except Unsafe:
        assert value not in ("..\\..", "%2e%2e/%2e%2e")
    else:
        # Names that only look like a way up.
        assert value in ("..\\..", "%2e%2e/%2e%2e")
        assert_below_the_pool(result)


@pytest.mark.parametrize(
    "value", [".localvolume", ".localvolume/trash", ".LocalVolume", "..", "/x", "", ".x", " /../y"]
)
def test_a_free_pattern_stays_out_of_what_is_ours(value: str) -> None:
    with pytest.raises(Unsafe):
        place("{{ .PVC.Annotations.dir }}", unsafe=True, annotations={"dir": value})


def test_what_a_claim_lacks_is_no_path() -> None:
    with pytest.raises(Unsafe, match="no annotation 'dir'"):
        place(OWN + "/{{ .PVC.Annotations.dir }}")
    with pytest.raises(Unsafe, match="is not known"):
        place("{{ .Foo }}")


def test_an_absolute_path_is_called_that() -> None:
    with pytest.raises(Unsafe, match="is absolute"):
        place("{{ .PVC.Annotations.dir }}", unsafe=True, annotations={"dir": "/etc"})


def test_a_reason_is_one_short_line() -> None:
    with pytest.raises(Unsafe) as caught:
        place("{{ .PVC.Annotations.dir }}", annotations={"dir": "x\n" * 5000})
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 400


# --- mode and owner


def test_modes_and_owners() -> None:
    assert [read_mode(text) for text in ("700", "0700", "2775", "01777", "000")] == [
        0o700, 0o700, 0o2775, 0o1777, 0,
    ]  # fmt: skip
    for text in (
        "",
        "7",
        "77",
        "4755",
        "6755",
        "07777",
        "-700",
        "0o700",
        "800",
        "rwx",
        "７00",
        "700\n",
    ):
        with pytest.raises(Unsafe, match="mode"):
            read_mode(text)
    assert read_id("4294967294", "owner") == 2**32 - 2
    for text in ("", "-1", "4294967295", "01", "root", "1.0", "１", "1\n", "9" * 50):
        with pytest.raises(Unsafe, match="owner"):
            read_id(text, "owner")


def test_a_tenant_may_only_choose_where_the_class_lets_it() -> None:
    wish = Wish(mode="{{ .PVC.Annotations.mode }}", uid="{{ .PVC.Labels.uid }}")
    owner = owner_of(wish, claim(labels={"uid": "7"}, annotations={"mode": "0750"}), "pvc-1")
    assert (owner.mode, owner.uid, owner.gid) == (0o750, 7, 0)
    with pytest.raises(Unsafe):
        owner_of(wish, claim(labels={"uid": "7"}, annotations={"mode": "4750"}), "pvc-1")
    with pytest.raises(Unsafe):
        owner_of(wish, claim(labels={"uid": "7"}), "pvc-1")


# --- other claims' volumes


def test_conflicts() -> None:
    others = ["a/b", "c", ""]
    assert conflicts("a/b", others) == "is another volume's"
    assert conflicts("a/b/d", others) == "lies inside another volume's, 'a/b'"
    assert conflicts("a", others) == "holds another volume's, 'a/b'"
    for path in ("a/bc", "a/c", "cc", "d"):
        assert conflicts(path, others) is None


# --- volumes that another provisioner made


def pool(host_dir: str, provisioner: str = "p") -> PoolConfig:
    return PoolConfig(
        name=host_dir.replace("/", ""),
        host_dir=host_dir,
        mount_dir="/seen",
        provisioner=provisioner,
    )


def volume(
    path: str, *, provisioner: str = "p", host_path: bool = False, both: bool = False
) -> PersistentVolume:
    spec = PVSpec(
        local=None if host_path else LocalSource(path=path),
        host_path=HostPathSource(path=path) if host_path or both else None,
    )
    annotations = {"pv.kubernetes.io/provisioned-by": provisioner} if provisioner else {}
    return PersistentVolume(metadata=Meta(name="pvc-1", annotations=annotations), spec=spec)


POOLS = [pool("/opt/l"), pool("/data"), pool("/k", "other"), pool("/data/inner")]


@pytest.mark.parametrize("host_path", [False, True])
def test_an_adopted_volumes_place(host_path: bool) -> None:
    found = relative_place(volume("/opt/l/pvc-1_team_data", host_path=host_path), POOLS)
    assert found == (POOLS[0], "pvc-1_team_data")
    assert relative_place(volume("/data/team/data", host_path=host_path), POOLS) == (
        POOLS[1],
        "team/data",
    )
    # The pool that is nearest.
    assert relative_place(volume("/data/inner/x"), POOLS) == (POOLS[3], "x")
    assert relative_place(volume("/k/x", provisioner="other"), POOLS) == (POOLS[2], "x")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/opt/l", "is a whole pool"),
        ("/opt", "lies in no pool of p"),
        ("/opt/lx/y", "lies in no pool of p"),
        ("/k/x", "lies in no pool of p"),
        ("/", "is not a clean"),
        ("", "is not a clean"),
        ("opt/l/x", "is not a clean"),
        ("/opt/l/", "is not a clean"),
        ("/opt/l/x/", "is not a clean"),
        ("/opt/l//x", "is not a clean"),
        ("//opt/l/x", "is not a clean"),
        ("/opt/l/./x", "is not a clean"),
        ("/opt/l/../../etc", "is not a clean"),
        ("/opt/l/x/..", "is not a clean"),
        ("/opt/l/x\0", "is not a clean"),
        ("/opt/l/x\n", "is not a clean"),
        (f"/opt/l/{'x' * 256}", "is not a clean"),
        ("/opt/l/.localvolume", "is none of a volume's"),
        ("/opt/l/.localvolume/images/x", "is none of a volume's"),
        ("/opt/l/.LOCALVOLUME/x", "is none of a volume's"),
    ],
)
def test_other_paths_are_left_alone(path: str, reason: str) -> None:
    for host_path in (False, True):
        found = relative_place(volume(path, host_path=host_path), POOLS)
        assert isinstance(found, str)
        assert reason in found


def test_a_volume_must_say_who_made_it_and_where() -> None:
    found = relative_place(volume("/opt/l/x", provisioner=""), POOLS)
    assert found == "it does not say which provisioner made it"
    nowhere = PersistentVolume(metadata=volume("/x").metadata)
    assert relative_place(nowhere, POOLS) == "it names no directory of a node"
    assert relative_place(volume("/opt/l/x", both=True), POOLS) == "it names no directory of a node"


# --- volumes of other nodes


def of_node(node: str, *, label: str | None = None, pool_id: str = "theirs") -> PersistentVolume:
    terms = []
    if node:
        named = NodeSelectorRequirement(key=HOSTNAME_LABEL, operator="In", values=(node,))
        terms.append(NodeSelectorTerm(match_expressions=(named,)))
    meta = Meta(
        name="pvc-1",
        labels={NODE_LABEL: node if label is None else label},
        annotations={POOL_ANNOTATION: f"fast/{pool_id}" if pool_id else ""},
    )
    spec = PVSpec(
        node_affinity=VolumeNodeAffinity(required=NodeSelector(node_selector_terms=tuple(terms)))
    )
    return PersistentVolume(metadata=meta, spec=spec)


@pytest.mark.parametrize("hostname", ["ours", "host-of-ours"])
def test_a_volume_is_elsewhere_where_all_that_it_says_is(hostname: str) -> None:
    here = NodeFacts("ours", "uid", hostname, {HOSTNAME_LABEL: hostname})
    assert is_surely_elsewhere(of_node("other"), here, {"our-pool"})
    for doubtful in (
        of_node("ours", label="other"),
        of_node("other", label="ours"),
        of_node("other", label=""),
        of_node("other", pool_id="our-pool"),
        of_node("other", pool_id=""),
        of_node("", label="other"),
    ):
        assert not is_surely_elsewhere(doubtful, here, {"our-pool"})
    assert not is_surely_elsewhere(of_node(hostname, label="other"), here, {"our-pool"})


# --- properties

HOSTILE = st.sampled_from(
    ["..", ".", "/", "//", "../", "/..", "/../", "", ".localvolume", "team", "data", "pvc-1",
     "a", "b", "a/b", "\\", "\0", "\n", " ", "{{ .PVName }}", "é", "\ud800", "-", "_", ".."]
)  # fmt: skip
TEXT = st.lists(HOSTILE, max_size=5).map("".join) | st.text(max_size=8)
PART = TEXT | st.sampled_from(
    ["{{ .PVName }}", "{{ .PVC.Name }}", "{{ .PVC.Namespace }}", "{{ .PVC.Labels.l }}", "/",
     '{{ index .PVC.Annotations "a" }}', OWN, f"{OWN}/", "{{- .PVC.Name -}}"]
)  # fmt: skip
PATTERNS = st.lists(PART, max_size=5).map("".join)
DNS = st.from_regex(r"[ab]([-ab.]{0,2}[ab])?", fullmatch=True)
PV = st.integers(0, 3).map("pvc-{}".format)


@st.composite
def claims(draw: st.DrawFn, *, valid: bool = False) -> PersistentVolumeClaim:
    names = DNS | PV if valid else DNS | TEXT
    return claim(draw(names), draw(names), {"l": draw(TEXT)}, {"a": draw(TEXT)})


@given(claims(), PATTERNS, st.booleans(), st.sampled_from(FLAVORS), PV | TEXT)
@settings(max_examples=examples(1500))
def test_no_place_is_outside_the_pool(
    of: PersistentVolumeClaim, pattern: str, unsafe: bool, flavor: Flavor, pv_name: str
) -> None:
    wish = Wish(directory=pattern, unsafe_directory=unsafe)
    try:
        path = directory_of(wish, flavor, of, pv_name)
    except Unsafe:
        return
    assert_below_the_pool(path)
    if pattern and not unsafe:
        own = f"{of.metadata.namespace}/{of.metadata.name}"
        assert posixpath.commonpath([f"/{own}", f"/{path}"]) == f"/{own}"


@given(claims(), st.dictionaries(
    st.sampled_from(["pathPattern", "allowUnsafePathPattern", "nodePath", "permPattern"]),
    PATTERNS | st.sampled_from(["true", "1"]), max_size=4), PV)  # fmt: skip
@settings(max_examples=examples(500))
def test_no_parameters_lead_outside_the_pool(
    of: PersistentVolumeClaim, parameters: dict[str, str], pv_name: str
) -> None:
    wish = read_class(StorageClass(parameters=parameters), flavor="local-path")
    if isinstance(wish, Wish):
        try:
            path = directory_of(wish, "local-path", of, pv_name)
        except Unsafe:
            return
        assert_below_the_pool(path)


@given(claims(valid=True), claims(valid=True), PATTERNS, st.sampled_from(FLAVORS))
@settings(max_examples=examples(1000))
def test_no_two_claims_meet_in_one_class(
    one: PersistentVolumeClaim, two: PersistentVolumeClaim, pattern: str, flavor: Flavor
) -> None:
    """Without any look at what there is: names alone keep the claims of a safe class apart."""
    keys = [(of.metadata.namespace, of.metadata.name) for of in (one, two)]
    assume(keys[0] != keys[1])
    try:
        first = directory_of(Wish(directory=pattern), flavor, one, "pvc-a")
        second = directory_of(Wish(directory=pattern), flavor, two, "pvc-b")
    except Unsafe:
        return
    assert is_apart(first, second)


@given(st.lists(st.tuples(claims(valid=True), PATTERNS, st.booleans(), st.sampled_from(FLAVORS)),
                min_size=2, max_size=6))  # fmt: skip
@settings(max_examples=examples(500))
def test_no_volume_reaches_another(
    asked: list[tuple[PersistentVolumeClaim, str, bool, Flavor]],
) -> None:
    """Whatever classes there are: what does not conflict lies apart from all before it."""
    taken: list[str] = []
    for number, (of, pattern, unsafe, flavor) in enumerate(asked):
        wish = Wish(directory=pattern, unsafe_directory=unsafe)
        try:
            path = directory_of(wish, flavor, of, f"pvc-{number}")
        except Unsafe:
            continue
        if conflicts(path, taken) is None:
            taken.append(path)
        else:
            assert not all(is_apart(path, other) for other in taken)
    assert all(is_apart(one, two) for one, two in itertools.combinations(taken, 2))


@given(st.sampled_from(["", "/", "/data", "/data/", "/opt/l", "/opt/l/", "/k/"]), TEXT, TEXT)
@settings(max_examples=examples(1000))
def test_no_adopted_volume_is_outside_its_pool(start: str, middle: str, end: str) -> None:
    path = start + middle + end
    found = relative_place(volume(path), POOLS)
    if not isinstance(found, str):
        config, where = found
        assert path == f"{config.host_dir}/{where}"
        assert posixpath.normpath(path) == path
        assert config.provisioner == "p"
        assert where.partition("/")[0].lower() != ".localvolume"
    elif found.endswith("on this node"):
        assert not any(
            path.startswith(one.host_dir + "/") for one in POOLS if one.provisioner == "p"
        )
