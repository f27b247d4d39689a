"""Lost nodes: what is removed for them, when, and above all what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.controller.model import (
    DeleteClaim,
    DeleteVolume,
    Keep,
    LetGo,
    MarkLost,
    MarkReturned,
    Policy,
    Report,
    Wait,
)
from localvolume.controller.plan.volumes import lost_since
from localvolume.kube.objects import Node, NodeSelectorTerm, PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.periods import Moment, Witnessed
from tests.decisions.support_controller import (
    AN_HOUR_AGO,
    JUST_NOW,
    LISTED,
    LONG_AGO,
    NOW,
    a,
    action,
    node,
    on_hosts,
    requirement,
    term,
    volume,
)

DESTRUCTIVE = (DeleteClaim, DeleteVolume, LetGo)
ELSEWHERE = [node("alive")]


# --- is it lost? ---------------------------------------------------------------------------------


def test_a_lost_node_is_marked_first_with_what_follows() -> None:
    marked = a(MarkLost, action(volume(phase="Bound", claim="c"), ELSEWHERE))
    assert "gone" in marked.reason
    assert "its claim is deleted after 1m" in marked.then


@pytest.mark.parametrize("text", ["", "yesterday", "2027-01-15", "2027-01-15T08:00:00+01:00"])
def test_a_mark_that_cannot_be_read_is_made_anew(text: str) -> None:
    a(MarkLost, action(volume(lost=text), ELSEWHERE))


def test_a_mark_says_when() -> None:
    assert lost_since(volume(lost=AN_HOUR_AGO)) == NOW - 3600
    assert lost_since(volume()) is None


@pytest.mark.parametrize(
    "there",
    [
        [node("gone")],
        [node("gone", hostname="")],
        [node("gone", hostname="another")],
        [node("renamed", hostname="gone")],
        [node("a"), node("gone"), node("z")],
    ],
    ids=["as ever", "without its label", "with another label", "by its label", "among others"],
)
def test_a_node_is_there_by_name_or_by_hostname(there: list[Node]) -> None:
    for about in (
        volume(phase="Bound", claim="c"),
        volume(),
        volume(phase="Released", claim="c"),
        volume(deleted=True),
    ):
        a(Keep, action(about, there))


def test_the_node_that_has_it_is_there_under_another_hostname() -> None:
    """A node's name is for ever, its hostname label is not: our label has the name."""
    short = on_hosts("short")
    there = [node("gone.example", hostname="renamed")]
    for about in (
        volume(short, label="gone.example", phase="Bound", claim="c"),
        volume(short, label="gone.example", lost=LONG_AGO),
    ):
        assert isinstance(action(about, there), Keep | MarkReturned)
    a(MarkLost, action(volume(short, label="other.example"), there))
    a(MarkLost, action(volume(short, label=None), there))


def test_of_several_names_one_that_is_there_suffices() -> None:
    for terms in ([on_hosts("gone", "alive")], [on_hosts("gone"), on_hosts("alive")]):
        a(Keep, action(volume(*terms), ELSEWHERE))


def test_within_a_term_only_what_every_list_has_is_named() -> None:
    """Upstream's reading: intersection within a term, union across terms."""
    both = term(
        requirement(marks.HOSTNAME_LABEL, "In", "gone", "alive"),
        requirement(marks.HOSTNAME_LABEL, "In", "gone", "other"),
    )
    a(MarkLost, action(volume(both), ELSEWHERE))
    none = term(
        requirement(marks.HOSTNAME_LABEL, "In", "gone"),
        requirement(marks.HOSTNAME_LABEL, "In", "other"),
    )
    a(Keep, action(volume(none, lost=LONG_AGO), ELSEWHERE))


def test_a_node_that_no_longer_fits_the_rest_of_its_term_is_not_lost() -> None:
    picky = term(requirement(marks.HOSTNAME_LABEL, "In", "gone"), requirement("disk", "In", "nvme"))
    a(Keep, action(volume(picky, lost=None), [node("gone", disk="rust")]))


@pytest.mark.parametrize(
    "terms",
    [(), (term(),), (term(requirement(marks.HOSTNAME_LABEL, "NotIn", "gone")),)],
    ids=["no terms", "an empty term", "only who must not"],
)
def test_an_affinity_that_names_no_node_is_never_lost(terms: tuple[NodeSelectorTerm, ...]) -> None:
    about = volume(*(terms or (term(),)), lost=LONG_AGO)
    a(Keep, action(about, []))


# --- shared disks: terms that mean nodes by other labels -----------------------------------------

SHARED = (on_hosts("gone"), term(requirement("rack", "In", "7")))


def test_a_shared_disk_that_another_node_reaches_is_not_lost() -> None:
    for about in (volume(*SHARED), volume(*SHARED, phase="Bound", claim="c", lost=LONG_AGO)):
        found = action(about, [node("alive", rack="7")])
        assert not isinstance(found, (*DESTRUCTIVE, MarkLost))


def test_a_shared_disk_that_no_node_reaches_now_is_told_and_nothing_is_removed() -> None:
    for about in (
        volume(*SHARED, lost=LONG_AGO),
        volume(*SHARED, lost=LONG_AGO, phase="Bound", claim="c"),
        volume(*SHARED, lost=LONG_AGO, phase="Released", claim="c"),
        volume(*SHARED, lost=LONG_AGO, deleted=True),
    ):
        found = a(Report, action(about, [node("alive", rack="8")]))
        assert "selector" in found.reason


# --- claims --------------------------------------------------------------------------------------


def test_a_claim_is_deleted_after_the_delay_and_not_before() -> None:
    held = volume(phase="Bound", claim="c", lost=JUST_NOW)
    for passed in (0.0, 59.0):
        wait = a(Wait, action(held, ELSEWHERE, now=NOW + passed))
        assert wait.seconds == 60.0 - passed
    a(DeleteClaim, action(held, ELSEWHERE, now=NOW + 60))


def test_a_claim_that_is_just_being_bound_counts_as_bound() -> None:
    """The binder writes claimRef first and the phase later."""
    a(DeleteClaim, action(volume(phase="Available", claim="c", lost=LONG_AGO), ELSEWHERE))


def test_a_mark_from_the_future_lets_no_time_pass() -> None:
    """Clocks of two controllers may differ: then it takes longer."""
    held = volume(phase="Bound", claim="c", lost=JUST_NOW)
    wait = a(Wait, action(held, ELSEWHERE, now=NOW - 500))
    assert wait.seconds == 60.0


YEAR = 365 * 86400.0


@pytest.mark.parametrize(
    ("now", "witnessed", "said"),
    [
        pytest.param(Moment(NOW + YEAR, NOW), Witnessed(0, NOW), "this machine's clock", id="here"),
        pytest.param(Moment(NOW, NOW + YEAR), Witnessed(0, NOW), "the API server's", id="there"),
        pytest.param(Moment(NOW + YEAR, NOW + YEAR), Witnessed(0, NOW), "", id="both"),
        pytest.param(Moment(NOW + YEAR, None), Witnessed(0, NOW), "", id="no-answer-yet"),
    ],
)
def test_a_clock_that_jumps_ends_no_time_for_a_node_to_return(
    now: Moment, witnessed: Witnessed, said: str
) -> None:
    used = volume(phase="Released", claim="c", lost=JUST_NOW)
    wait = a(Wait, action(used, ELSEWHERE, now=now, witnessed=witnessed))
    assert wait.seconds == 86400.0
    assert (f"; {said}" in wait.reason) == bool(said)
    # This leader has seen it lost for all that time.
    seen = Witnessed(86400.0)
    assert a(DeleteVolume, action(used, ELSEWHERE, now=now, witnessed=seen)).abandons
    held = volume(phase="Bound", claim="c", lost=JUST_NOW)
    a(Wait, action(held, ELSEWHERE, now=now, witnessed=witnessed))


def test_a_claim_of_a_volume_that_is_being_deleted_is_a_claim_all_the_same() -> None:
    a(DeleteClaim, action(volume(phase="Bound", claim="c", lost=LONG_AGO, deleted=True), ELSEWHERE))


# --- PersistentVolumes ---------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Delete", "Recycle", "Retain"])
def test_what_no_claim_ever_used_is_removed_at_once(policy: str) -> None:
    assert not a(DeleteVolume, action(volume(policy=policy, lost=JUST_NOW), ELSEWHERE)).abandons


def test_what_a_claim_used_and_nobody_cleaned_is_kept_while_the_node_may_return() -> None:
    used = volume(phase="Released", claim="c", lost=AN_HOUR_AGO)
    wait = a(Wait, action(used, ELSEWHERE))
    assert wait.seconds == 86400 - 3600
    assert a(DeleteVolume, action(used, ELSEWHERE, now=NOW + 86400)).abandons


def test_the_period_in_which_a_node_may_return_is_the_administrators() -> None:
    policy = Policy(frozenset({"fast"}), return_period=0.0)
    used = volume(phase="Released", claim="c", lost=JUST_NOW)
    assert a(DeleteVolume, action(used, ELSEWHERE, policy)).abandons


def test_a_volume_that_was_released_by_hand_is_as_unclean() -> None:
    marked = volume(annotations={marks.CLAIMED_ANNOTATION: "c"}, lost=AN_HOUR_AGO)
    a(Wait, action(marked, ELSEWHERE))


@pytest.mark.parametrize("policy", ["Retain", "Recycle", "Unheard"])
def test_what_a_claim_used_and_is_not_to_be_deleted_is_kept_for_ever(policy: str) -> None:
    for about in (
        volume(phase="Released", claim="c", policy=policy, lost=LONG_AGO),
        volume(annotations={marks.CLAIMED_ANNOTATION: "c"}, policy=policy, lost=LONG_AGO),
    ):
        assert not a(Report, action(about, ELSEWHERE)).would


@pytest.mark.parametrize("phase", ["Pending", "Failed", "", "Unheard"])
def test_another_phase_is_for_people(phase: str) -> None:
    found = action(volume(phase=phase, lost=LONG_AGO), ELSEWHERE)
    assert not a(Report, found).would


# --- objects that are being deleted --------------------------------------------------------------


def test_what_somebody_deleted_is_let_go_as_it_would_have_been_deleted() -> None:
    assert not a(LetGo, action(volume(deleted=True, lost=JUST_NOW), ELSEWHERE)).abandons
    used = volume(phase="Released", claim="c", deleted=True, lost=AN_HOUR_AGO)
    a(Wait, action(used, ELSEWHERE))
    assert a(LetGo, action(used, ELSEWHERE, now=NOW + 86400)).abandons


def test_what_is_to_be_kept_and_was_deleted_by_hand_goes() -> None:
    """As its agent would: the object goes, the data stays."""
    kept = volume(phase="Released", claim="c", policy="Retain", deleted=True, lost=JUST_NOW)
    assert not a(LetGo, action(kept, ELSEWHERE)).abandons


def test_what_waits_for_another_finalizer_is_left_alone() -> None:
    a(Keep, action(volume(deleted=True, finalizers=("other/one",), lost=LONG_AGO), ELSEWHERE))


# --- who asked for it ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "would"),
    [
        (volume(phase="Bound", claim="c", lost=LONG_AGO), "its claim is deleted"),
        (volume(lost=LONG_AGO), "it is removed"),
        (volume(phase="Released", claim="c", lost=LONG_AGO), "it is removed, never cleaned"),
        (volume(deleted=True, lost=LONG_AGO), "it is removed"),
    ],
)
def test_without_asking_it_is_only_said(about: PersistentVolume, would: str) -> None:
    for classes in ((), ("slow", "Fast")):
        found = action(about, ELSEWHERE, Policy(frozenset(classes)))
        assert a(Report, found).would == would


def test_several_classes_may_be_listed() -> None:
    policy = Policy(frozenset({"slow", "fast"}))
    a(DeleteVolume, action(volume(lost=LONG_AGO), ELSEWHERE, policy))


def test_what_is_not_ours_is_only_touched_in_a_listed_class() -> None:
    foreign = {"provisioner": "example.com/other", "label": None, "lost": LONG_AGO}
    a(Keep, action(volume(class_name="other", **foreign), ELSEWHERE))  # type: ignore[arg-type]
    a(DeleteVolume, action(volume(**foreign), ELSEWHERE))  # type: ignore[arg-type]
    unsaid = foreign | {"provisioner": None}
    a(Keep, action(volume(class_name="other", **unsaid), ELSEWHERE))  # type: ignore[arg-type]


def test_our_label_alone_makes_it_ours() -> None:
    about = volume(provisioner=None, class_name="other", lost=LONG_AGO)
    assert a(Report, action(about, ELSEWHERE)).would


def test_what_is_no_local_volume_is_none_of_our_business() -> None:
    a(Keep, action(volume(local=False, lost=LONG_AGO), ELSEWHERE))


# --- a node that returns -------------------------------------------------------------------------


def test_a_node_that_returned_takes_the_mark_away_whatever_was_due() -> None:
    """Also one that was created anew under its name: its agent compares the disks."""
    for about in (
        volume(phase="Bound", claim="c", lost=LONG_AGO),
        volume(phase="Released", claim="c", lost=LONG_AGO),
        volume(deleted=True, lost=LONG_AGO),
        volume(lost="unreadable"),
    ):
        assert "gone" in a(MarkReturned, action(about, [node("gone")])).reason


def test_a_mark_goes_also_where_only_a_selector_means_the_node() -> None:
    """Somebody may have changed the affinity since."""
    by_rack = term(requirement("rack", "In", "7"))
    a(MarkReturned, action(volume(by_rack, lost=LONG_AGO), [node("alive", rack="7")]))


# --- anything ------------------------------------------------------------------------------------

HOSTS = st.sampled_from(["gone", "alive", "third"])
LABELS = st.sampled_from(["rack", "disk"])


@st.composite
def terms(draw: st.DrawFn) -> NodeSelectorTerm:
    wanted = [
        requirement(marks.HOSTNAME_LABEL, draw(st.sampled_from(["In", "NotIn"])), *hosts)
        for hosts in draw(st.lists(st.lists(HOSTS, min_size=1, max_size=2), max_size=2))
    ]
    wanted += [requirement(key, "Exists") for key in draw(st.lists(LABELS, max_size=1))]
    return term(*wanted)


@st.composite
def volumes(draw: st.DrawFn) -> PersistentVolume:
    return volume(
        *draw(st.lists(terms(), min_size=1, max_size=3)),
        phase=draw(st.sampled_from(["Available", "Pending", "Bound", "Released", "Failed", ""])),
        policy=draw(st.sampled_from(["Delete", "Retain", "Recycle"])),
        claim=draw(st.sampled_from([None, "", "claim-uid"])),
        class_name=draw(st.sampled_from(["fast", "slow"])),
        label=draw(st.sampled_from([None, "gone"])),
        lost=draw(st.sampled_from([None, "?", JUST_NOW, AN_HOUR_AGO, LONG_AGO])),
        deleted=draw(st.booleans()),
        finalizers=draw(st.sampled_from([(), (marks.FINALIZER,)])),
        annotations=draw(st.sampled_from([{}, {marks.CLAIMED_ANNOTATION: "c"}])),
        local=draw(st.booleans()),
    )


@given(volumes(), st.lists(st.builds(node, HOSTS, rack=st.just("7")), max_size=3))
def test_nothing_is_ever_removed_unless_all_of_this_holds(
    about: PersistentVolume, there: list[Node]
) -> None:
    found = action(about, there)
    if not isinstance(found, DESTRUCTIVE):
        return
    present = {one.metadata.name for one in there}
    affinity = about.spec.node_affinity
    assert affinity is not None
    assert affinity.required is not None
    for one in affinity.required.node_selector_terms:
        lists = [set(r.values) for r in one.match_expressions if r.operator == "In"]
        assert lists, "another node may come that this term means"
        assert not set.intersection(*lists) & present
    assert about.spec.storage_class_name in LISTED.delete_classes
    assert about.spec.local is not None
    since = lost_since(about)
    assert since is not None
    used = bool(
        (about.spec.claim_ref and about.spec.claim_ref.uid)
        or marks.CLAIMED_ANNOTATION in about.metadata.annotations
    )
    if isinstance(found, DeleteClaim):
        assert NOW - since >= LISTED.claim_delay
    elif used and about.spec.persistent_volume_reclaim_policy == "Delete":
        assert NOW - since >= LISTED.return_period
        assert found.abandons
    elif used:
        assert isinstance(found, LetGo), "its data is to be kept"
