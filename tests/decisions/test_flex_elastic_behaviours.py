"""Which test shows what elastic's driver was tested for, and what each known weakness would break.

E-FV-01 to E-FV-56 are elastic's unit tests, package by package. W-01 and further are weaknesses of
elastic's driver, TopoLVM, OpenEBS and Azure's driver. A line is an id, what it is about, and the
tests that fail without it: `D` tests/decisions, `H` tests/host, `T` tests/contract, `K` tests/cli,
`C` tests/cluster, `G` tests/kernel/inside (with a real LVM). "differs": where we do otherwise on
purpose, and why; the test shows what we do.

E-FV-01 | provisioner: the object | D/test_flex_provision.py::test_pv_equals_expected_object
E-FV-02 | protocol: size -> string map | D/test_flex_provision.py::test_protocol_size_to_string_map
E-FV-03 | flex: Success | D/test_flex_protocol.py::test_success_failure_and_not_supported_byte_for_byte
E-FV-04 | flex: Failure | D/test_flex_protocol.py::test_success_failure_and_not_supported_byte_for_byte
E-FV-05 | flex: NotSupported; differs: the kubelet's spelling | D/test_flex_protocol.py::test_success_failure_and_not_supported_byte_for_byte K/test_flexvolume_client.py::test_flex_success_failure_not_supported
E-FV-06 | client: Init; differs: answered without the daemon, which may start later | K/test_flexvolume_client.py::test_client_init_returns_the_body K/test_flexvolume_client.py::test_init_is_answered_where_no_agent_runs
E-FV-07 | client: Mount returns the body, or the error; differs: as JSON | K/test_flexvolume_client.py::test_client_mount_and_unmount_return_the_body K/test_flexvolume_client.py::test_client_mount_and_unmount_return_the_error_text
E-FV-08 | client: Unmount, likewise | K/test_flexvolume_client.py::test_client_mount_and_unmount_return_the_body K/test_flexvolume_client.py::test_client_mount_and_unmount_return_the_error_text
E-FV-09 | client: Mount accepts options, rejects what is no JSON | K/test_flexvolume_client.py::test_client_mount_accepts_options K/test_flexvolume_client.py::test_client_mount_rejects_non_json
E-FV-10 | client: Get; differs: the client has none, the daemon answers it still | H/test_flex_server.py::test_routes_methods_and_errors K/test_flexvolume_client.py::test_init_is_answered_where_no_agent_runs
E-FV-11 | client: Post, its errors, a body that is no JSON | K/test_flexvolume_client.py::test_client_post_unmarshalable_body K/test_flexvolume_client.py::test_mount_posts_the_directory_and_the_options K/test_flexvolume_client.py::test_no_socket
E-FV-12 | client: there is always a transport | K/test_flexvolume_client.py::test_client_transport_is_never_nil
E-FV-13 | routes: init | D/test_flex_protocol.py::test_init_byte_for_byte C/test_flex_daemon.py::test_init_and_the_installed_client
E-FV-14 | routes: mount, `EOF`, affinity and label; differs: POST alone | H/test_flex_server.py::test_routes_methods_and_errors C/test_flex_daemon.py::test_an_empty_body_is_an_error_of_the_call C/test_flex_daemon.py::test_the_first_mount_binds_the_volume_to_the_node
E-FV-15 | routes: unmount, `EOF` | D/test_flex_protocol.py::test_an_empty_body_is_answered_as_gos_decoder C/test_flex_daemon.py::test_an_empty_body_is_an_error_of_the_call
E-FV-16 | k8s: stale is updated, current is left, missing is an error | T/test_flex_binding.py::test_a_stale_one_is_bound_and_a_bound_one_is_left C/test_flex_daemon.py::test_a_bound_one_is_not_written_again C/test_flex_daemon.py::test_what_is_not_there_is_an_error_of_the_call
E-FV-17 | pathutil: the last part; differs: no other paths | D/test_flex_protocol.py::test_a_target_names_pod_driver_and_volume D/test_flex_protocol.py::test_nothing_is_mounted_at_any_other_path
E-FV-18 | pathutil: joined to the root | H/test_flex_bindmount.py::test_a_volume_is_made_mounted_unmounted_and_kept
E-FV-19 | diskutil: BindMount; differs: by system calls, from a held directory | H/test_flex_bindmount.py::test_a_volume_is_made_mounted_unmounted_and_kept H/test_flex_bindmount.py::test_a_missing_target_is_an_error
E-FV-20 | diskutil: MountDevice | H/test_flex_devicemount.py::test_a_device_is_mounted_by_one_command H/test_flex_devicemount.py::test_its_failure_is_in_the_commands_words
E-FV-21 | diskutil: Unmount | H/test_flex_devicemount.py::test_it_is_unmounted_by_one_command
E-FV-22 | diskutil: FormatDevice | H/test_flex_devicemount.py::test_a_filesystem_is_made_by_one_command
E-FV-23 | diskutil: EnsureDirExists | H/test_flex_devicemount.py::test_a_device_is_mounted_by_one_command H/test_flex_devicemount.py::test_targets_that_cannot_be
E-FV-24 | cmdutil: RunCmd, the error's text | H/test_flex_devicemount.py::test_its_failure_is_in_the_commands_words D/test_lvm_reports.py::test_an_unknown_complaint_is_handed_on_in_its_own_words
E-FV-25 | cmdutil: CombinedOutput; differs: never mixed | H/test_commands.py::test_what_a_program_says_and_how_it_ends
E-FV-26 | cmdutil: stdout and stderr | H/test_commands.py::test_what_a_program_says_and_how_it_ends
E-FV-27 | cmdutil: an unknown program | H/test_commands.py::test_a_missing_program_is_told_from_a_failing_one D/test_lvm_reports.py::test_lvm_that_is_not_installed_is_said_so
E-FV-28 | lvm: Init; differs: the same for every driver | D/test_flex_protocol.py::test_init_byte_for_byte
E-FV-29 | lvm: RunLVMCmd, JSON, four sentinels, what is unknown | D/test_lvm_reports.py::test_garbage_with_success_is_a_bad_report D/test_lvm_reports.py::test_a_complaint_is_told_by_its_words_whatever_the_status D/test_lvm_reports.py::test_an_unknown_complaint_is_handed_on_in_its_own_words
E-FV-30 | lvm: LookupVolumeGroup | H/test_flex_lvm_commands.py::test_a_group_is_looked_up H/test_flex_lvm_commands.py::test_an_error_is_never_none
E-FV-31 | lvm: CreateLogicalVolume | H/test_flex_lvm_commands.py::test_what_makes_a_volume D/test_lvm_reports.py::test_bad_names_are_refused_before_anything_runs
E-FV-32 | lvm: CreateThinPool | H/test_flex_lvm_commands.py::test_what_makes_a_volume D/test_lvm_reports.py::test_bad_names_are_refused_before_anything_runs
E-FV-33 | lvm: CreateThinVolume | H/test_flex_lvm_commands.py::test_what_makes_a_volume D/test_lvm_reports.py::test_bad_names_are_refused_before_anything_runs
E-FV-34 | lvm: lookupLV | H/test_flex_lvm_commands.py::test_looking_for_volumes H/test_flex_lvm_commands.py::test_an_error_is_never_none
E-FV-35 | lvm: LookupLogicalVolume, one of one and of many | H/test_flex_lvm_commands.py::test_looking_for_volumes
E-FV-36 | lvm: LookupThinPool | H/test_flex_lvm_commands.py::test_looking_for_volumes
E-FV-37 | lvm: ListLogicalVolumes | H/test_flex_lvm_commands.py::test_looking_for_volumes
E-FV-38 | lvm: GetOrCreateThinPool, both branches | H/test_flex_lvm_commands.py::test_thin_in_the_pool_that_there_is_or_is_made G/test_flex_lvm_mounts.py::test_mount_makes_the_thin_pool_or_finds_it
E-FV-39 | lvm: Path; differs: it is seen to lead to that volume | H/test_flex_lvm_commands.py::test_a_device_is_where_lvm_says_and_is_that_volume
E-FV-40 | lvm: Remove; differs: by UUID, and never along with snapshots | H/test_flex_lvm_commands.py::test_one_is_removed_by_its_uuid
E-FV-41 | lvm: ValidateLogicalVolumeName | D/test_lvm_reports.py::test_good_names_are_taken D/test_lvm_reports.py::test_bad_names_are_refused_before_anything_runs
E-FV-42 | lvm: createThinLV | H/test_flex_lvm_commands.py::test_thin_in_the_pool_that_there_is_or_is_made
E-FV-43 | lvm: createStandardLV, and no room | H/test_flex_lvm_commands.py::test_thick_where_no_pool_is_named H/test_flex_lvm_commands.py::test_no_room
E-FV-44 | lvm: CreateLV chooses, and no room | H/test_flex_lvm_commands.py::test_no_room H/test_flex_lvm_commands.py::test_thick_where_no_pool_is_named H/test_flex_lvm_commands.py::test_thin_in_the_pool_that_there_is_or_is_made
E-FV-45 | lvm: Mount, its sequences; differs: what exists must be ours | H/test_flex_lvm_commands.py::test_mount_ends_at_the_first_step_that_fails G/test_flex_lvm_mounts.py::test_mount_creates_a_thick_volume_and_reuses_it G/test_flex_lvm_mounts.py::test_mount_makes_the_thin_pool_or_finds_it G/test_flex_lvm_mounts.py::test_mount_that_cannot_create_makes_nothing G/test_flex_lvm_mounts.py::test_mount_whose_mkfs_or_mount_fails_goes_on_later
E-FV-46 | lvm: Unmount; differs: what is not mounted is unmounted | H/test_flex_lvm_commands.py::test_where_nothing_is_mounted_lvm_is_not_even_asked G/test_flex_lvm_mounts.py::test_mount_and_unmount_touch_only_their_own
E-FV-47 | lvm: ListVolumes; differs: never the pool, never others' | H/test_flex_lvm_commands.py::test_only_what_is_ours_is_listed H/test_flex_lvm_commands.py::test_an_error_is_never_none
E-FV-48 | lvm: PurgeVolume, six branches; differs: a missing group is an error | H/test_flex_lvm_commands.py::test_purging G/test_flex_lvm_removal.py::test_purge_takes_just_what_was_listed
E-FV-49 | bindmount: Init; differs: the same for every driver | D/test_flex_protocol.py::test_init_byte_for_byte
E-FV-50 | bindmount: Mount, its errors | H/test_flex_bindmount.py::test_a_volume_is_made_mounted_unmounted_and_kept H/test_flex_bindmount.py::test_without_its_root_nothing_is_made H/test_flex_bindmount.py::test_a_missing_target_is_an_error H/test_flex_bindmount.py::test_something_else_mounted_there_is_left
E-FV-51 | bindmount: Unmount | H/test_flex_bindmount.py::test_a_volume_is_made_mounted_unmounted_and_kept H/test_flex_bindmount.py::test_each_call_may_come_again
E-FV-52 | pvgc: unknown is purged, known is kept, the API's alone ignored; differs: not at first sight | T/test_flex_collecting.py::test_a_volume_goes_after_the_grace_period_and_it_is_told D/test_flex_collect.py::test_a_volume_with_a_persistentvolume_of_its_name_is_kept D/test_flex_collect.py::test_nobody_removes_at_first_sight T/test_flex_collecting.py::test_nothing_unmarked_is_ever_listed_or_removed
E-FV-53 | retry: success at first | T/test_flex_binding.py::test_a_stale_one_is_bound_and_a_bound_one_is_left
E-FV-54 | retry: success later; differs: conflicts alone, the rest is asked again by kubelet | T/test_flex_binding.py::test_a_conflict_is_tried_again
E-FV-55 | retry: the time is over in the first attempt | H/test_flex_turns.py::test_what_hangs_is_given_up_and_blocks_its_own_volume_alone H/test_flex_turns.py::test_who_waits_too_long_is_told
E-FV-56 | retry: the last error, after failures | T/test_flex_binding.py::test_conflicts_without_end_end_in_words

W-01 | elastic: lvremove -f of every volume without a PersistentVolume, pools included | D/test_flex_collect.py::test_listvolumes_returns_nothing_else H/test_flex_lvm_commands.py::test_only_what_is_ours_is_listed H/test_flex_lvm_commands.py::test_what_is_not_certainly_it_stays G/test_lvm_store_guards.py::test_foreign_volumes_are_never_touched
W-02 | elastic: bindmount deletes lost+found and strays | H/test_flex_bindmount.py::test_a_removed_one_is_gone_and_nothing_else T/test_flex_collecting.py::test_nothing_unmarked_is_ever_listed_or_removed
W-03 | elastic: a lost label destroys live data | D/test_flex_collect.py::test_a_volume_with_a_persistentvolume_of_its_name_is_kept T/test_flex_collecting.py::test_what_the_caller_has_seen_is_believed_only_to_be_there
W-04 | elastic: Retain is ignored | D/test_flex_collect.py::test_any_other_policy_keeps_the_data T/test_flex_collecting.py::test_a_policy_of_retain_keeps_it_for_good C/test_flex_daemon.py::test_retain_set_at_the_last_moment_keeps_the_volume
W-05 | elastic: errors told by an exit status that is always 5 | D/test_lvm_reports.py::test_a_complaint_is_told_by_its_words_whatever_the_status
W-06 | elastic: messages come back empty | D/test_lvm_reports.py::test_an_unknown_complaint_is_handed_on_in_its_own_words H/test_flex_lvm_commands.py::test_what_makes_a_volume
W-07 | elastic: a crash before mkfs leaves what never mounts | G/test_flex_lvm_mounts.py::test_mount_whose_mkfs_or_mount_fails_goes_on_later
W-08 | elastic: no fsck | G/test_flex_lvm_mounts.py::test_what_e2fsck_is_sure_of_is_put_right_before_a_mount
W-09 | elastic: no read-only | H/test_flex_devicemount.py::test_read_only_is_each_mounts_own H/test_flex_bindmount.py::test_read_only_is_read_only_and_changes_with_the_call G/test_flex_lvm_life.py::test_two_pods_have_one_volume_and_one_of_them_may_not_write
W-10 | elastic: sizes are not compared; what exists is matched by name | G/test_flex_lvm_mounts.py::test_the_size_is_compared_and_never_shrinks G/test_flex_lvm_mounts.py::test_a_volume_of_others_is_refused_and_left_alone H/test_flex_bindmount.py::test_a_directory_without_a_record_is_not_given_to_a_pod
W-11 | elastic: roundUpTo512 adds to exact multiples | H/test_flex_lvm_commands.py::test_sizes_are_whole_sectors_and_no_more
W-12 | elastic: the client never answers Not supported | K/test_flexvolume_client.py::test_every_other_callout_is_not_supported
W-13 | elastic: `Not Supported` | D/test_flex_protocol.py::test_success_failure_and_not_supported_byte_for_byte K/test_flexvolume_client.py::test_every_other_callout_is_not_supported
W-14 | elastic: requiresFSResize is left to be true | K/test_flexvolume_client.py::test_init_is_answered_where_no_agent_runs
W-15 | elastic: driver.sh copies in place | H/test_flex_install.py::test_nobody_ever_meets_half_of_it
W-16 | elastic: the client is there before its daemon | C/test_flex_elastic.py::test_the_client_is_installed_only_once_somebody_answers_it
W-17 | elastic: the node's name for its hostname label | T/test_flex_binding.py::test_a_stale_one_is_bound_and_a_bound_one_is_left C/test_flex_daemon.py::test_the_first_mount_binds_the_volume_to_the_node
W-18 | elastic: GKE mounts another directory than the bind root | H/test_flex_bindmount.py::test_without_its_root_nothing_is_made H/test_flex_bindmount.py::test_what_a_claim_has_had_is_not_made_anew
W-19 | elastic: no locks | C/test_flex_daemon.py::test_calls_of_one_volume_take_turns_and_agree H/test_flex_turns.py::test_a_second_call_waits_for_the_first
W-20 | elastic: no time-outs | H/test_flex_turns.py::test_what_hangs_is_given_up_and_blocks_its_own_volume_alone H/test_flex_turns.py::test_the_time_that_was_waited_counts
W-21 | TopoLVM: what is recovered has no size | D/test_lvm_records.py::test_what_lvm_has_given_counts_once_the_filesystem_has_it G/test_lvm_store_crashes.py::test_a_filesystem_survives_death_at_each_step
W-22 | TopoLVM: options are read and have no effect | D/test_flex_configuration.py::test_every_key_is_heeded D/test_config_lvm.py::test_every_key_of_thick_and_thin_volumes
W-23 | TopoLVM: spare-gb is ignored when making | D/test_pool_rooms.py::test_room_of_logical_volumes G/test_lvm_store_guards.py::test_what_is_to_be_spared_is_spared
W-24 | TopoLVM: a snapshot tried again is another one | G/test_lvm_store_snapshots.py::test_a_snapshot_of_a_volume_in_use_is_a_clean_filesystem
W-25 | TopoLVM: what exists is taken for what is asked for | D/test_lvm_records.py::test_what_is_half_made_goes_on_if_it_is_what_is_asked_for
W-26 | TopoLVM: no room to grow is an internal error | G/test_flex_lvm_mounts.py::test_the_size_is_compared_and_never_shrinks
W-27 | TopoLVM: one lock for all volumes of a node | H/test_flex_turns.py::test_a_second_call_waits_for_the_first H/test_flex_turns.py::test_what_hangs_is_given_up_and_blocks_its_own_volume_alone
W-28 | TopoLVM, OpenEBS, Azure: mounts are stacked by a retry | H/test_flex_devicemount.py::test_a_device_is_mounted_by_one_command H/test_flex_bindmount.py::test_each_call_may_come_again
W-29 | TopoLVM: claims bound at once are forgotten with a lost node | D/test_controller_flex.py::test_a_lost_nodes C/test_flex_provisioner.py::test_a_lost_nodes_volumes
W-30 | OpenEBS: an error of a look is taken for "gone" | H/test_flex_lvm_commands.py::test_an_error_is_never_none G/test_lvm_store_guards.py::test_from_an_unreadable_report_nothing_is_concluded
W-31 | OpenEBS: an inactive volume is taken for deleted | D/test_flex_collect.py::test_an_inactive_volume_is_listed_as_any G/test_lvm_store_guards.py::test_an_inactive_volume_is_activated_never_taken_for_gone_or_corrupted
W-32 | OpenEBS: an error is "no thin pool" | H/test_flex_lvm_commands.py::test_an_error_is_never_none H/test_flex_lvm_commands.py::test_mount_ends_at_the_first_step_that_fails
W-33 | OpenEBS: the group with the least room is chosen | D/test_dynamic_pools.py::test_the_pool_with_the_most_room
W-34 | OpenEBS: no unmount once the object is gone | C/test_flex_daemon.py::test_what_is_still_mounted_is_not_removed H/test_flex_lvm_commands.py::test_where_nothing_is_mounted_lvm_is_not_even_asked
W-35 | Azure: an inactive volume is corrupted, and deleted | G/test_flex_lvm_life.py::test_a_group_that_was_deactivated_as_by_a_reboot G/test_flex_lvm_mounts.py::test_what_is_corrupt_is_never_formatted
W-36 | Azure: pvremove of every disk of the host | D/test_flex_elastic_behaviours.py::test_groups_and_disks_are_never_made_or_removed
W-37 | Azure: orphans are removed without a grace period | D/test_flex_collect.py::test_the_grace_period_is_waited_for T/test_flex_collecting.py::test_clocks_that_are_set_remove_nothing_early
W-38 | Azure: content sources are confirmed, not copied | D/test_flex_provision.py::test_claims_that_are_refused D/test_dynamic_claims.py::test_data_sources

Not here, for want of the thing itself: what is said in answer to CSI's calls (TopoLVM's
ValidateVolumeCapabilities and gRPC recovery, Azure's GetCapacity and NodeUnstageVolume, OpenEBS'
MountBlock, host-path's group snapshots) is the CSI driver's; node annotations for a scheduler
extender (TopoLVM's updateNode) we have none; elastic's driver.yaml (`env` twice) comes with our
own manifests.
"""  # noqa: E501 - a table

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent.parent
SOURCES = TESTS.parent / "src"
PLACES = {
    "D": "decisions",
    "H": "host",
    "T": "contract",
    "K": "cli",
    "C": "cluster",
    "G": "kernel/inside",
}
BEHAVIOURS, WEAKNESSES = 56, 38


class Row(NamedTuple):
    """A line of the table; `tests` are paths below `tests` and names of functions."""

    id: str
    about: str
    tests: list[tuple[str, str]]


def table() -> list[Row]:
    rows = []
    for line in (__doc__ or "").splitlines():
        if re.match(r"E-FV-|W-\d+ \|", line) and "|" in line:
            name, about, where = line.split(" | ")
            tests = [word.partition("::") for word in where.split()]
            places = [(f"{PLACES[path[0]]}{path[1:]}", test) for path, _, test in tests]
            rows.append(Row(name, about, places))
    return rows


@functools.cache
def names_in(path: str) -> frozenset[str]:
    """The names of the test functions in a file, in classes or not."""
    tree = ast.parse((TESTS / path).read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test_")
    )


def test_every_behaviour_and_weakness_has_its_tests() -> None:
    """The table names each once, and tests that there are."""
    rows = table()
    assert [row.id for row in rows] == [
        *(f"E-FV-{number:02}" for number in range(1, BEHAVIOURS + 1)),
        *(f"W-{number:02}" for number in range(1, WEAKNESSES + 1)),
    ]
    missing = [
        f"{row.id}: {path}::{test}"
        for row in rows
        for path, test in row.tests
        if not (TESTS / path).is_file() or test not in names_in(path)
    ]
    assert missing == []
    assert all(row.tests for row in rows)


def test_an_id_in_a_tests_docstring_is_in_the_table_too() -> None:
    """Who reads the test finds the weakness, and nobody finds another one's."""
    known = {(row.id, *test) for row in table() for test in row.tests}
    found = set()
    for place in PLACES.values():
        for file in sorted((TESTS / place).glob("test_*.py")):
            text = file.read_text()
            if file == Path(__file__) or not re.search(r"\b(E-FV|W)-\d\d\b", text):
                continue
            path = str(file.relative_to(TESTS))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    said = re.findall(r"\b(?:E-FV|W)-\d\d\b", ast.get_docstring(node) or "")
                    found |= {(one, path, node.name) for one in said}
    assert sorted(found - known) == []
    assert found, "none is named anywhere"


_NEVER = re.compile(
    r"(pv(create|remove|change|move|resize)|vg(create|remove|reduce|extend|rename))"
)


def test_groups_and_disks_are_never_made_or_removed() -> None:
    """W-36: Azure's driver ran pvremove on every disk of the host.

    Which disks a group has is for those to say who run the node: no program of ours ever runs a
    command that makes, changes or removes a physical volume or a volume group.
    """
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            said = node.value if isinstance(node, ast.Constant) else None
            if isinstance(said, str) and _NEVER.fullmatch(said):
                found.append(f"{path.relative_to(SOURCES)}: {said}")
    assert found == []
