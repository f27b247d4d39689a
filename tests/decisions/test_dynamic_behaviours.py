"""Which test shows what the dynamic provisioners were tested for, and what each known defect would break.

L01 to L103 are the tests of sig-storage-lib-external-provisioner, R33 to R46 local-path's on a
cluster, O23 to O42 OpenEBS' of its classes, sources and volumes, E01 to E47 external-provisioner's as
far as they are about a node's own volumes. The numbers are ours, as those of the defects of all of
these and kutti. A line is an id, what it is about, and the tests that fail without it: `D`
tests/decisions, `C` tests/cluster, `G` tests/kernel/inside, `N` tests/node, `F` tests/faults.
"differs": where we do otherwise on purpose; the test shows what we do. "not here": why there is
nothing to be tested. A defect has a line for each of its parts.

L01 | of two claims, ours alone is served | D/test_dynamic_claims.py::test_one_claim_served_and_another_left C/test_dynamic_life.py::test_what_is_made_and_removed_is_counted C/test_dynamic_life.py::test_a_claim_becomes_a_directory_and_goes_with_it
L02 | its volume's object exists: no second | D/test_dynamic_claims.py::test_its_volume_exists
L03 | Block where the backend has none | D/test_dynamic_claims.py::test_volume_modes
L04 | further names of provisioners | D/test_dynamic_claims.py::test_names_of_the_provisioners_that_are_replaced_are_served D/test_dynamic_manifest.py::test_what_the_provisioner_needs_that_is_replaced
L05 | released, ours, Delete: removed; another's stays | D/test_dynamic_ownership.py::test_not_our_provisioners D/test_dynamic_volumes.py::test_released_and_delete C/test_dynamic_adoption.py::test_it_stays_as_it_is_and_goes_with_its_claim C/test_dynamic_life.py::test_what_is_made_and_removed_is_counted C/test_dynamic_restart.py::test_what_was_asked_for_meanwhile_is_served_at_the_start C/test_dynamic_life.py::test_a_claim_becomes_a_directory_and_goes_with_it
L06 | a claim that names its volume | D/test_dynamic_claims.py::test_left_to_others
L07 | no such class | D/test_dynamic_claims.py::test_a_class_that_is_not_there D/test_routing.py::test_not_ours C/test_routing.py::test_a_class_that_comes_after_its_claim
L08 | bound: stays | D/test_dynamic_volumes.py::test_not_released C/test_dynamic_adoption.py::test_it_stays_as_it_is_and_goes_with_its_claim
L09 | released, Retain: stays | D/test_dynamic_volumes.py::test_another_policy C/test_dynamic_adoption.py::test_what_its_policy_retains_stays C/test_dynamic_restart.py::test_retain_keeps_data_and_object_and_without_object_the_data
L10 | making fails: no object, counted | C/test_dynamic_errors.py::test_an_ordinary_failure_is_tried_again
L11 | removing fails: the object stays | D/test_dynamic_volumes.py::test_removed_again_and_again_until_it_is C/test_dynamic_failing.py::test_a_volume_that_a_pod_has_mounted_is_not_removed C/test_dynamic_images.py::test_what_a_pod_still_has_mounted_is_not_detached
L12 | the object cannot be created; differs: tried for ever, the volume is kept for it | D/test_dynamic_volumes.py::test_the_record_learns_of_the_object C/test_dynamic_failing.py::test_while_the_object_may_not_be_created_there_is_one_volume D/test_dynamic_claims.py::test_what_is_complete_is_published F/test_dynamic_kill.py::test_killed_once_at_each_point_no_volume_is_leaked_doubled_or_lost
L13 | removed, and the object cannot be deleted; differs: the object's deletion comes first | D/test_dynamic_volumes.py::test_removed_again_and_again_until_it_is C/test_dynamic_failing.py::test_while_the_object_may_not_be_deleted_the_data_stays C/test_dynamic_failing.py::test_a_removed_volume_is_purged_only_once_its_object_is_gone F/test_dynamic_kill.py::test_killed_once_at_each_point_no_volume_is_leaked_doubled_or_lost
L14 | not for us: left without a word | D/test_dynamic_claims.py::test_one_claim_served_and_another_left
L15 | one served, one left | D/test_dynamic_claims.py::test_one_claim_served_and_another_left C/test_dynamic_life.py::test_what_is_made_and_removed_is_counted
L16 | the class's Retain is the volume's | D/test_dynamic_manifest.py::test_the_reclaim_policy_is_the_classs C/test_dynamic_restart.py::test_retain_keeps_data_and_object_and_without_object_the_data
L17 | made by a backend that goes on where it was | D/test_dynamic_claims.py::test_what_is_complete_is_published F/test_dynamic_kill.py::test_killed_once_at_each_point_no_volume_is_leaked_doubled_or_lost
L18 | a failure for good leaves nothing begun | C/test_dynamic_errors.py::test_no_room_after_all_sends_it_elsewhere
L19 | a failure on the way: it is known what was begun | D/test_dynamic_claims.py::test_what_was_begun_is_ended_where_it_was_begun C/test_dynamic_restart.py::test_an_agent_that_ends_while_it_makes_a_volume
L20 | nothing has changed, for a fresh claim | not here: no backend answers that nothing has changed
L21 | a failure for good ends what was begun | C/test_dynamic_errors.py::test_no_room_after_all_sends_it_elsewhere
L22 | a failure on the way keeps what was begun | D/test_dynamic_claims.py::test_what_was_begun_is_ended_where_it_was_begun C/test_dynamic_restart.py::test_an_agent_that_ends_while_it_makes_a_volume
L23 | nothing has changed, for one that is begun | not here: as L20
L24 | the claim goes while its volume is made; differs: it is taken away, not made | D/test_dynamic_claims.py::test_left_to_others D/test_dynamic_claims.py::test_a_claim_deleted_meanwhile D/test_dynamic_records.py::test_a_claim_that_is_not_served_here C/test_dynamic_restart.py::test_a_claim_that_is_deleted_while_its_volume_is_made_leaves_nothing
L25 | the object is not created at once; differs: the volume's record says so, not memory | D/test_dynamic_claims.py::test_what_is_complete_is_published D/test_dynamic_volumes.py::test_the_record_learns_of_the_object
L26 | created by a later attempt | D/test_dynamic_claims.py::test_what_is_complete_is_published F/test_dynamic_kill.py::test_killed_once_at_each_point_no_volume_is_leaked_doubled_or_lost
L27 | another node is to be chosen | D/test_dynamic_claims.py::test_allowed_topologies D/test_dynamic_claims.py::test_no_pool_of_the_class_is_here D/test_dynamic_records.py::test_a_claim_that_is_not_served_here C/test_dynamic_errors.py::test_no_room_after_all_sends_it_elsewhere
L28 | a failure that any node has: the node stays chosen | D/test_dynamic_claims.py::test_rejected
L29 | nothing has changed: the node stays chosen | not here: as L20
L30 | what is begun keeps its node | D/test_dynamic_claims.py::test_what_was_begun_is_ended_where_it_was_begun D/test_dynamic_claims.py::test_what_was_begun_is_not_given_back
L31 | a new object has the finalizer | D/test_dynamic_manifest.py::test_the_whole_object
L32 | without finalizers; differs: ours cannot be switched off | D/test_dynamic_volumes.py::test_the_finalizer_is_given_back
L33 | Retain and the finalizer; differs: it stays, so that the record is ended | D/test_dynamic_manifest.py::test_the_reclaim_policy_is_the_classs D/test_dynamic_volumes.py::test_deleted_and_to_be_kept D/test_dynamic_volumes.py::test_the_finalizer_is_given_back
L34 | being deleted without our finalizer: left alone | D/test_dynamic_ownership.py::test_an_adopted_volume_that_is_deleted_without_us D/test_dynamic_volumes.py::test_deleted_without_our_finalizer
L35 | with the finalizer, released: all of it goes | D/test_dynamic_volumes.py::test_released_and_delete
L36 | the same, being deleted already | D/test_dynamic_volumes.py::test_deleted_and_held_by_our_finalizer
L37 | with the finalizer, removing fails: both stay | D/test_dynamic_volumes.py::test_removed_again_and_again_until_it_is C/test_dynamic_failing.py::test_a_volume_that_a_pod_has_mounted_is_not_removed C/test_dynamic_images.py::test_what_a_pod_still_has_mounted_is_not_detached
L38 | with the finalizer, and the object does not go yet | D/test_dynamic_volumes.py::test_in_the_trash_already C/test_dynamic_failing.py::test_while_the_object_may_not_be_deleted_the_data_stays C/test_dynamic_failing.py::test_a_removed_volume_is_purged_only_once_its_object_is_gone F/test_dynamic_kill.py::test_killed_once_at_each_point_no_volume_is_leaked_doubled_or_lost
L39 | bound without the finalizer: it is given back | D/test_dynamic_volumes.py::test_the_finalizer_is_given_back
L40 | the same again | D/test_dynamic_volumes.py::test_the_finalizer_is_given_back
L41 | the same of a driver's; differs: only by our own name | D/test_dynamic_volumes.py::test_the_finalizer_is_given_back
L42 | no topology is asked for | D/test_dynamic_claims.py::test_allowed_topologies D/test_routing_rooms.py::test_allowed_topologies
L43 | the class's topologies | D/test_dynamic_claims.py::test_allowed_topologies D/test_routing_rooms.py::test_allowed_topologies
L44 | the chosen node | D/test_dynamic_claims.py::test_allowed_topologies D/test_dynamic_manifest.py::test_the_affinity_has_the_labels_that_the_class_names D/test_routing_rooms.py::test_allowed_topologies
L45 | both | D/test_dynamic_claims.py::test_allowed_topologies D/test_dynamic_manifest.py::test_the_affinity_has_the_labels_that_the_class_names D/test_routing_rooms.py::test_allowed_topologies
L46 | ours by name | D/test_dynamic_claims.py::test_a_claim_is_made_a_volume D/test_dynamic_claims.py::test_served D/test_routing.py::test_ours
L47 | ours by a further name | D/test_dynamic_claims.py::test_names_of_the_provisioners_that_are_replaced_are_served D/test_routing.py::test_ours C/test_routing.py::test_a_provisioner_that_is_replaced
L48 | bound already | D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_not_ours
L49 | no annotation and no class | D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_not_ours C/test_routing.py::test_a_class_that_comes_after_its_claim
L50 | another's | D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_not_ours C/test_routing.py::test_provisioners_that_are_not_ours
L51 | another's, by the older annotation | D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_not_ours
L52 | no annotation | D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_not_ours
L53 | nearly our name | D/test_dynamic_claims.py::test_the_annotation_of_today_counts_before_the_beta_one D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_not_ours
L54 | the rules of this node refuse it | D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_not_ours
L55 | they agree | D/test_dynamic_claims.py::test_a_claim_is_made_a_volume C/test_dynamic_life.py::test_a_claim_becomes_a_directory_and_goes_with_it
L56 | waits for a pod, no node chosen | D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_none_selected
L57 | waits for a pod, a node chosen | D/test_dynamic_claims.py::test_a_claim_is_made_a_volume D/test_routing.py::test_ours
L58 | the same, by the annotation of today | D/test_dynamic_claims.py::test_served D/test_routing.py::test_ours
L59 | released, Delete: removed | D/test_dynamic_volumes.py::test_released_and_delete
L60 | failed: not removed | D/test_dynamic_volumes.py::test_failed
L61 | bound: not removed | D/test_dynamic_volumes.py::test_not_released
L62 | Retain: not removed | D/test_dynamic_volumes.py::test_another_policy
L63 | being deleted, and not held by us: not removed | D/test_dynamic_volumes.py::test_deleted_without_our_finalizer
L64 | not being deleted: removed | D/test_dynamic_volumes.py::test_released_and_delete
L65 | marked as migrated; differs: the mark counts for nothing | D/test_dynamic_ownership.py::test_not_our_provisioners D/test_dynamic_ownership.py::test_ours_and_migrated
L66 | made by our name | D/test_dynamic_ownership.py::test_ours D/test_routing_adoption.py::test_each_kind_is_adopted_by_its_node
L67 | made by our name, migrated to another's | D/test_dynamic_ownership.py::test_not_our_provisioners D/test_dynamic_ownership.py::test_ours_and_migrated
L68 | made by an unknown one | D/test_dynamic_ownership.py::test_not_our_provisioners D/test_routing_adoption.py::test_none_is_touched_without_the_flag D/test_routing_adoption.py::test_what_nobody_made_whom_we_serve
L69 | made by an unknown one, migrated elsewhere | D/test_dynamic_ownership.py::test_not_our_provisioners
L70 | a driver's, ours; differs: `local` and `hostPath` only | D/test_dynamic_ownership.py::test_ours D/test_routing_adoption.py::test_each_kind_is_adopted_by_its_node
L71 | a driver's, another's | D/test_dynamic_ownership.py::test_not_our_provisioners D/test_routing_adoption.py::test_what_nobody_made_whom_we_serve
L72 | a driver's without a maker; differs: never ours | D/test_dynamic_ownership.py::test_not_our_provisioners D/test_dynamic_ownership.py::test_theirs_that_we_replace D/test_routing_adoption.py::test_what_is_not_on_a_disk
L73 | another driver's without a maker | D/test_dynamic_ownership.py::test_not_our_provisioners D/test_routing_adoption.py::test_what_is_not_on_a_disk
L74 | made by hand | D/test_dynamic_ownership.py::test_not_our_provisioners D/test_routing_adoption.py::test_what_nobody_made_whom_we_serve
L75 | made by hand, migrated to us; differs: never ours | D/test_dynamic_ownership.py::test_not_our_provisioners D/test_dynamic_ownership.py::test_theirs_that_we_replace D/test_routing_adoption.py::test_what_is_not_on_a_disk
L76 | made by hand, migrated elsewhere | D/test_dynamic_ownership.py::test_not_our_provisioners
L77 | held by us, released: removed | D/test_dynamic_volumes.py::test_released_and_delete
L78 | held by us, being deleted: removed | D/test_dynamic_volumes.py::test_deleted_and_held_by_our_finalizer
L79 | held by us, bound: waits | D/test_dynamic_volumes.py::test_not_released D/test_dynamic_volumes.py::test_deleted_and_held_by_a_claim
L80 | held by us, Retain: the data stays | D/test_dynamic_volumes.py::test_another_policy D/test_dynamic_volumes.py::test_deleted_and_to_be_kept
L81 | takes the only finalizer away | D/test_dynamic_volumes.py::test_removing_it_keeps_the_others
L82 | takes none away that is not there | D/test_dynamic_volumes.py::test_removing_what_is_not_there
L83 | takes ours away, not others' | D/test_dynamic_volumes.py::test_removing_it_keeps_the_others
L84 | takes none away from none | D/test_dynamic_volumes.py::test_removing_what_is_not_there
L85 | the same, where there is no list | D/test_dynamic_volumes.py::test_removing_what_is_not_there
L86 | gives it to nobody twice | D/test_dynamic_volumes.py::test_adding_it_keeps_the_others
L87 | gives it where there is no list | D/test_dynamic_volumes.py::test_adding_it_keeps_the_others
L88 | gives it to an empty list | D/test_dynamic_volumes.py::test_adding_it_keeps_the_others
L89 | gives it beside others | D/test_dynamic_volumes.py::test_adding_it_keeps_the_others
L90 | no mode, a backend without Block | D/test_dynamic_claims.py::test_served
L91 | Filesystem, without Block | D/test_dynamic_claims.py::test_volume_modes
L92 | Block, without Block | D/test_dynamic_claims.py::test_volume_modes
L93 | no mode, a backend that says no | D/test_dynamic_claims.py::test_served
L94 | Filesystem, a backend that says no | D/test_dynamic_claims.py::test_volume_modes
L95 | Block, a backend that says no | D/test_dynamic_claims.py::test_volume_modes
L96 | no mode, with Block | D/test_dynamic_claims.py::test_served D/test_dynamic_claims.py::test_volume_modes
L97 | Filesystem, with Block | D/test_dynamic_claims.py::test_volume_modes
L98 | Block, with Block | D/test_dynamic_claims.py::test_volume_modes
L99 | shared caches: makes | C/test_dynamic_errors.py::test_both_roles_read_the_same_informers
L100 | shared caches: removes | C/test_dynamic_errors.py::test_both_roles_read_the_same_informers
L101 | an ordinary failure is tried again | C/test_dynamic_errors.py::test_an_ordinary_failure_is_tried_again
L102 | what can never be is not tried again soon | D/test_dynamic_claims.py::test_rejected D/test_dynamic_claims.py::test_rejected_by_its_class C/test_dynamic_errors.py::test_what_cannot_be_done_is_tried_late
L103 | and once more when the long wait is over | C/test_dynamic_errors.py::test_what_cannot_be_done_is_tried_late
R33 | by default a hostPath; differs: it must exist | D/test_class_parameters.py::test_local_paths_types C/test_dynamic_adoption.py::test_it_stays_as_it_is_and_goes_with_its_claim C/test_dynamic_localpath.py::test_by_default_it_is_a_hostpath_that_must_exist N/test_dynamic_directories.py::test_the_next_pod_reads_what_the_first_wrote
R34 | the claim wants the type local | D/test_class_parameters.py::test_local_paths_types C/test_dynamic_adoption.py::test_it_stays_as_it_is_and_goes_with_its_claim C/test_dynamic_localpath.py::test_a_claim_may_ask_for_the_type_local N/test_dynamic_directories.py::test_claim_or_class_may_ask_for_the_type_local
R35 | the class wants it | D/test_class_parameters.py::test_local_paths_types C/test_dynamic_localpath.py::test_a_class_may_have_the_type_local_for_a_default N/test_dynamic_directories.py::test_claim_or_class_may_ask_for_the_type_local
R36 | on the node of the pod's affinity | C/test_dynamic_localpath.py::test_only_the_node_that_was_selected_serves_it C/test_scheduling_dynamic.py::test_a_pod_gets_its_volume_on_the_node_that_was_chosen_for_it
R37 | ReadWriteOncePod | C/test_dynamic_localpath.py::test_one_pod_alone_may_have_it N/test_dynamic_directories.py::test_a_claim_for_one_pod_alone_is_served
R38 | a user without rights writes | N/test_dynamic_directories.py::test_a_user_without_rights_writes_and_reads N/test_dynamic_images.py::test_a_user_without_rights_writes_to_the_image
R39 | a part of the volume | N/test_dynamic_directories.py::test_a_pod_may_mount_a_part_of_the_volume
R40 | affinity by another label; and it is removed | D/test_dynamic_manifest.py::test_the_affinity_has_the_labels_that_the_class_names C/test_dynamic_adoption.py::test_the_label_of_its_affinity_need_not_be_the_hostname C/test_dynamic_localpath.py::test_the_affinity_is_by_the_label_of_the_class C/test_dynamic_localpath.py::test_a_node_without_the_label_gives_the_claim_back N/test_dynamic_directories.py::test_a_volume_is_placed_owned_and_bound_as_the_class_says
R41 | the pattern's directory | D/test_path_safety.py::test_patterns_at_and_below_the_claims_own_place C/test_dynamic_adoption.py::test_what_a_pattern_placed_deeper_goes_alone C/test_dynamic_localpath.py::test_the_pattern_says_where_it_lies N/test_dynamic_directories.py::test_a_volume_is_placed_owned_and_bound_as_the_class_says
R42 | mode and owner by patterns; differs: no script | D/test_class_parameters.py::test_owner_and_mode_of_a_claim C/test_dynamic_localpath.py::test_mode_and_owner_are_those_of_the_class C/test_dynamic_localpath.py::test_the_claim_may_say_who_owns_it_but_not_more_than_that N/test_dynamic_directories.py::test_a_volume_is_placed_owned_and_bound_as_the_class_says
R43 | an unsafe pattern that the class allows | D/test_class_parameters.py::test_an_unsafe_pattern_is_allowed_either_way C/test_dynamic_localpath.py::test_a_class_may_allow_a_pattern_without_the_claims_name C/test_dynamic_localpath.py::test_without_leave_a_pattern_must_begin_with_the_claims_name
R44 | the same by annotation | D/test_class_parameters.py::test_an_unsafe_pattern_is_allowed_either_way C/test_dynamic_localpath.py::test_a_class_may_allow_a_pattern_without_the_claims_name
R45 | nobody climbs out | D/test_class_parameters.py::test_even_an_unsafe_pattern_never_climbs D/test_path_safety.py::test_a_tenants_annotation_never_climbs C/test_dynamic_localpath.py::test_no_claim_leaves_its_place C/test_dynamic_localpath.py::test_a_class_that_can_only_lead_out_is_refused_as_a_whole
R46 | a filesystem that nodes share; differs: refused by name | D/test_config_localpath.py::test_a_shared_filesystem_is_refused_with_the_alternative C/test_dynamic_localpath.py::test_scripts_and_shared_filesystems_are_refused_by_name
O23 | entries without data | D/test_config_openebs.py::test_entries_without_data_are_passed_over
O24 | lists by name | D/test_config_openebs.py::test_lists_are_read_by_their_name
O25 | no grace | D/test_config_openebs.py::test_no_grace_is_no_limit
O26 | a grace of nothing | D/test_config_openebs.py::test_a_limit_is_the_size_and_the_grace_in_whole_kib
O27 | more than all is capped | D/test_config_openebs.py::test_a_limit_is_the_size_and_the_grace_in_whole_kib
O28 | a fraction of a percent | D/test_config_openebs.py::test_a_limit_is_the_size_and_the_grace_in_whole_kib
O29 | no percent sign | D/test_config_openebs.py::test_what_is_no_percentage_is_refused C/test_dynamic_openebs.py::test_graces_that_are_none_are_refused
O30 | no number | D/test_config_openebs.py::test_what_is_no_percentage_is_refused C/test_dynamic_openebs.py::test_graces_that_are_none_are_refused
O31 | no source | D/test_dynamic_claims.py::test_no_data_source C/test_dynamic_openebs.py::test_an_empty_volume_is_no_clone
O32 | a clone | D/test_dynamic_claims.py::test_data_sources C/test_dynamic_openebs.py::test_an_empty_volume_is_no_clone
O33 | a clone of nobody | D/test_dynamic_claims.py::test_data_sources C/test_dynamic_openebs.py::test_an_empty_volume_is_no_clone
O34 | a snapshot | D/test_dynamic_claims.py::test_data_sources C/test_dynamic_openebs.py::test_an_empty_volume_is_no_clone
O35 | a snapshot of nobody | D/test_dynamic_claims.py::test_data_sources C/test_dynamic_openebs.py::test_an_empty_volume_is_no_clone
O36 | a populator | D/test_dynamic_claims.py::test_data_sources C/test_dynamic_openebs.py::test_an_empty_volume_is_no_clone
O37 | a populator of nobody | D/test_dynamic_claims.py::test_data_sources C/test_dynamic_openebs.py::test_an_empty_volume_is_no_clone
O38 | made and removed | C/test_dynamic_adoption.py::test_it_stays_as_it_is_and_goes_with_its_claim C/test_dynamic_openebs.py::test_a_volume_is_as_openebs_makes_it
O39 | xfs quota without quotas | C/test_dynamic_openebs.py::test_a_quota_that_cannot_be_kept_is_not_promised G/test_directory_backend.py::test_where_nothing_can_be_enforced_nothing_is_made
O40 | xfs quota holds | D/test_dynamic_pools.py::test_what_a_quota_allows_beyond_the_size_is_counted G/test_directory_backend.py::test_limits_apart_from_the_size_are_those_enforced N/test_dynamic_images.py::test_df_shows_the_size_and_a_write_beyond_it_fails
O41 | ext4 quota without quotas | C/test_dynamic_openebs.py::test_a_quota_that_cannot_be_kept_is_not_promised G/test_directory_backend.py::test_where_nothing_can_be_enforced_nothing_is_made
O42 | ext4 quota holds | G/test_directory_backend.py::test_limits_apart_from_the_size_are_those_enforced N/test_dynamic_images.py::test_df_shows_the_size_and_a_write_beyond_it_fails
E01 | our node is chosen | D/test_dynamic_claims.py::test_a_claim_is_made_a_volume D/test_routing.py::test_ours D/test_routing.py::test_the_selected_node_decides C/test_routing.py::test_the_node_that_the_scheduler_chose
E02 | none is chosen | D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_none_selected
E03 | another is chosen | D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_the_selected_node_decides
E04 | Immediate, our node is chosen | D/test_dynamic_claims.py::test_immediate_claims D/test_routing.py::test_the_selected_node_decides
E05 | Immediate, none is chosen; differs: the controller says by a label where, no race | D/test_dynamic_claims.py::test_immediate_claims D/test_routing.py::test_the_most_room C/test_routing.py::test_immediate_claims_go_where_there_is_room
E06 | Immediate, no room: untouched | D/test_routing.py::test_no_room_anywhere C/test_routing.py::test_immediate_claims_go_where_there_is_room
E07 | topologies that match | D/test_dynamic_claims.py::test_allowed_topologies D/test_routing.py::test_allowed_topologies_match D/test_routing_rooms.py::test_allowed_topologies C/test_routing.py::test_allowed_topologies
E08 | topologies that do not: another node | D/test_dynamic_claims.py::test_what_was_begun_is_not_given_back D/test_dynamic_claims.py::test_allowed_topologies D/test_routing.py::test_allowed_topologies_do_not_match D/test_routing_rooms.py::test_allowed_topologies C/test_routing.py::test_allowed_topologies
E09 | the chosen node is gone | D/test_dynamic_claims.py::test_left_to_others D/test_routing.py::test_the_selected_node_is_gone
E10 | removing: another node's | D/test_dynamic_ownership.py::test_the_affinity_means_this_node
E11 | removing: ours | D/test_dynamic_ownership.py::test_the_affinity_means_this_node
E12 | failures that pass | C/test_dynamic_errors.py::test_an_ordinary_failure_is_tried_again
E13 | failures that stay; no room: another node | C/test_dynamic_errors.py::test_no_room_after_all_sends_it_elsewhere
E14 | no place, no object | D/test_capacity_objects.py::test_what_external_provisioner_does
E15 | no class, no object | D/test_capacity_objects.py::test_what_external_provisioner_does
E16 | neither | D/test_capacity_objects.py::test_what_external_provisioner_does
E17 | one of each | D/test_capacity_objects.py::test_what_external_provisioner_does D/test_capacity_objects.py::test_a_whole_object C/test_capacity_objects.py::test_an_object_of_a_class_is_made_changed_and_removed
E18 | without an owner; differs: there always is one, the Node | D/test_capacity_objects.py::test_what_external_provisioner_does
E19 | the largest volume | D/test_capacity_objects.py::test_a_whole_object C/test_capacity_objects.py::test_an_object_of_a_class_is_made_changed_and_removed
E20 | Immediate is left out; differs: it makes no difference | D/test_capacity_objects.py::test_the_binding_mode_makes_no_difference
E21 | Immediate is told of | D/test_capacity_objects.py::test_the_binding_mode_makes_no_difference
E22 | unchanged: kept | D/test_capacity_objects.py::test_what_external_provisioner_does C/test_capacity_objects.py::test_the_end_of_the_process_leaves_them_and_a_new_one_takes_them_over
E23 | other room: changed | D/test_capacity_objects.py::test_what_external_provisioner_does C/test_capacity_objects.py::test_an_object_of_a_class_is_made_changed_and_removed
E24 | the owner is added | D/test_capacity_objects.py::test_what_external_provisioner_does
E25 | the owner is kept | D/test_capacity_objects.py::test_what_external_provisioner_does
E26 | the class is gone | D/test_capacity_objects.py::test_what_external_provisioner_does C/test_capacity_objects.py::test_an_object_of_a_class_is_made_changed_and_removed
E27 | the place is gone | D/test_capacity_objects.py::test_what_external_provisioner_does
E28 | another manager's | D/test_capacity_objects.py::test_what_external_provisioner_does C/test_capacity_objects.py::test_objects_of_others_are_not_touched
E29 | without our label | D/test_capacity_objects.py::test_what_external_provisioner_does C/test_capacity_objects.py::test_objects_of_others_are_not_touched
E30 | two by two are made | D/test_capacity_objects.py::test_what_external_provisioner_does D/test_capacity_objects.py::test_two_nodes_keep_to_their_own
E31 | two by two are changed | D/test_capacity_objects.py::test_what_external_provisioner_does D/test_capacity_objects.py::test_two_nodes_keep_to_their_own
E32 | two go and two come | D/test_capacity_objects.py::test_what_external_provisioner_does D/test_capacity_objects.py::test_two_nodes_keep_to_their_own C/test_capacity_objects.py::test_an_object_of_a_class_is_made_changed_and_removed
E33 | deleted by somebody: made again | D/test_capacity_objects.py::test_what_external_provisioner_does C/test_capacity_objects.py::test_what_others_delete_or_spoil_is_put_right
E34 | one too many | D/test_capacity_objects.py::test_what_external_provisioner_does C/test_capacity_objects.py::test_what_others_delete_or_spoil_is_put_right
E35 | taken over by another | D/test_capacity_objects.py::test_what_external_provisioner_does D/test_capacity_objects.py::test_a_name_that_another_object_has_is_passed_over C/test_capacity_objects.py::test_objects_of_others_are_not_touched C/test_capacity_objects.py::test_one_that_somebody_takes_over_is_theirs
E36 | wrong in somebody's hands: put right | D/test_capacity_objects.py::test_what_external_provisioner_does C/test_capacity_objects.py::test_what_others_delete_or_spoil_is_put_right
E37 | room is looked at again | D/test_capacity_objects.py::test_what_external_provisioner_does C/test_capacity_objects.py::test_an_object_of_a_class_is_made_changed_and_removed
E38 | a place comes | D/test_capacity_objects.py::test_what_external_provisioner_does
E39 | a place comes, Immediate | D/test_capacity_objects.py::test_what_external_provisioner_does D/test_capacity_objects.py::test_the_binding_mode_makes_no_difference
E40 | a place goes | D/test_capacity_objects.py::test_what_external_provisioner_does
E41 | places come and go at once | D/test_capacity_objects.py::test_what_external_provisioner_does
E42 | one class alone is looked at again | D/test_capacity_objects.py::test_what_external_provisioner_does
E43 | the topology changes: all classes | D/test_capacity_objects.py::test_what_external_provisioner_does
E44 | three levels of topology | D/test_capacity_objects.py::test_what_external_provisioner_does D/test_capacity_objects.py::test_any_other_topology_is_wrong
E45 | an unknown place | D/test_capacity_objects.py::test_what_external_provisioner_does
E46 | an unknown class | D/test_capacity_objects.py::test_what_external_provisioner_does
E47 | a place cut short | D/test_capacity_objects.py::test_what_external_provisioner_does D/test_capacity_objects.py::test_any_other_topology_is_wrong

defect 1 | kutti: the volume is elsewhere than the scheduler chose | D/test_dynamic_claims.py::test_one_claim_served_and_another_left C/test_dynamic_kutti.py::test_a_claim_of_a_pod_on_another_node_is_left_to_that_one
defect 2 | kutti: a node's name in the place of its label | D/test_dynamic_claims.py::test_left_to_others D/test_dynamic_manifest.py::test_the_affinity_has_the_labels_that_the_class_names C/test_dynamic_kutti.py::test_a_volume_is_as_kutti_makes_it
defect 3 | kutti: once it has moved, nothing is ever removed | D/test_dynamic_ownership.py::test_theirs_that_we_replace C/test_dynamic_adoption.py::test_it_was_released_before_we_came
defect 4 | kutti, local-path: a clone is empty; mount options are dropped | D/test_dynamic_claims.py::test_data_sources D/test_dynamic_manifest.py::test_mount_options_are_the_classs C/test_dynamic_kutti.py::test_more_than_kutti_knows_nothing_of_is_refused
defect 6 | local-path: a label's value taken for a node: its data is left behind | D/test_dynamic_ownership.py::test_the_affinity_means_this_node D/test_dynamic_ownership.py::test_an_adopted_volume_goes_with_its_claim C/test_dynamic_adoption.py::test_the_label_of_its_affinity_need_not_be_the_hostname C/test_dynamic_localpath.py::test_the_affinity_is_by_the_label_of_the_class
defect 7 | local-path: locks around the configuration | not here: there is none; what is read is replaced as a whole, between two plans
defect 8 | local-path: an invalid template ends the process | C/test_dynamic_localpath.py::test_an_edit_takes_effect_and_an_invalid_one_does_not
defect 9 | local-path: so does an empty path | D/test_config_localpath.py::test_what_is_wrong_is_named D/test_config_localpath.py::test_any_json_is_read_or_refused
defect 10 | local-path: failed helper pods, their template and token | D/test_config_localpath.py::test_no_helper_pods_are_used
defect 10 | local-path: a disk that is not mounted is hidden by a directory made in its place | D/test_dynamic_manifest.py::test_a_host_path_is_never_made_by_the_kubelet C/test_dynamic_localpath.py::test_by_default_it_is_a_hostpath_that_must_exist C/test_dynamic_mounts.py::test_a_replaced_provisioners_disk_that_is_away
defect 10 | local-path: a shared filesystem is cleaned from any node | D/test_config_localpath.py::test_a_shared_filesystem_is_refused_with_the_alternative C/test_dynamic_localpath.py::test_scripts_and_shared_filesystems_are_refused_by_name
defect 11 | local-path: a class that is gone keeps its volumes for ever | C/test_dynamic_adoption.py::test_a_removed_class_does_not_keep_its_volumes
defect 11 | local-path: no right to give a claim back | C/test_agent_rights_dynamic.py::test_a_whole_life_takes_all_of_these_and_no_others D/test_rights_golden.py::test_the_rights_of_the_manifests
defect 11 | local-path: claims may grow, and nobody grows them | C/test_dynamic_growing.py::test_claim_and_volume_tell_the_new_size
defect 11 | local-path: two replicas make two volumes | C/test_dynamic_restart.py::test_two_agents_of_one_node_never_make_two_volumes
defect 12 | OpenEBS: a crash leaves a claim stuck for ever | F/test_dynamic_kill.py::test_killed_once_at_each_point_no_volume_is_leaked_doubled_or_lost C/test_dynamic_restart.py::test_an_agent_that_ends_while_it_makes_a_volume
defect 12 | OpenEBS: two volumes share a quota | G/test_directory_backend.py::test_volumes_beside_each_other_are_limited_each G/test_directory_backend.py::test_the_project_of_an_orphan_is_not_given_to_another
defect 12 | OpenEBS: both quotas get in each other's way | D/test_config_openebs.py::test_both_quotas_mean_one
defect 13 | OpenEBS: a node that is gone blocks the removal for ever | D/test_controller_lost.py::test_what_a_claim_used_and_nobody_cleaned_is_kept_while_the_node_may_return C/test_controller_claims.py::test_the_claims_of_a_lost_node_are_deleted_after_the_delay
defect 13 | OpenEBS: a label that the node lacks becomes an empty one | D/test_dynamic_ownership.py::test_the_affinity_means_this_node C/test_dynamic_openebs.py::test_the_affinity_has_every_label_that_the_class_names C/test_dynamic_localpath.py::test_a_node_without_the_label_gives_the_claim_back
defect 13 | OpenEBS: names are sent to its makers | not here: nothing is sent to anybody but the API server
defect 13 | OpenEBS: rights to everything | D/test_rights_golden.py::test_the_rights_of_the_manifests D/test_rights_golden.py::test_what_nobody_is_given
defect 14 | the library: the long wait is not the one that was set | C/test_dynamic_errors.py::test_what_cannot_be_done_is_tried_late
defect 14 | the library: what is begun is known in memory alone, and leaks | D/test_dynamic_claims.py::test_a_claim_deleted_meanwhile C/test_dynamic_restart.py::test_an_agent_that_ends_while_it_makes_a_volume F/test_dynamic_kill.py::test_killed_once_at_each_point_no_volume_is_leaked_doubled_or_lost
defect 14 | the library: a claim that is being deleted is served | D/test_dynamic_claims.py::test_left_to_others C/test_dynamic_restart.py::test_a_claim_that_is_deleted_while_its_volume_is_made_leaves_nothing
defect 14 | the library: who deletes the object first leaves the volume behind | D/test_dynamic_volumes.py::test_deleted_and_held_by_our_finalizer
defect 14 | the library: what is left alone counts as a failure, or as removed | not here: acts are counted, and leaving alone is none
defect 14 | the library: one object that cannot be created holds others up | not here: what failed is planned again by itself, and nobody waits for it

Not here, for want of the thing itself: local-path's validator of helper pods (R01 to R26; none is
ever started), its `/health` (R27 to R32; ours is the agent's own, tests/cluster/test_metrics_and_health.py);
OpenEBS' variables for helper pods (O01 to O22; its base path alone
counts, D/test_config_openebs.py), block devices (O43 to O47) and applications (O48 to O55).
"""  # noqa: E501 - a table

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent.parent
PLACES = {
    "D": "decisions",
    "C": "cluster",
    "G": "kernel/inside",
    "N": "node",
    "F": "faults",
}
CASES = {"L": range(1, 104), "R": range(33, 47), "O": range(23, 43), "E": range(1, 48)}
#: There is no fifth.
DEFECTS = {1, 2, 3, 4, *range(6, 15)}

_ID = re.compile(r"\b([LROE])(\d{2,3})\b(?: to \1(\d{2,3})\b)?")
_NAMED = re.compile(r"(?:^|_)([lroe]\d{2,3})(?=_)")
_NOT_HERE = "not here: "


class Row(NamedTuple):
    """A line of the table; `tests` are paths below `tests` and names of functions, `why` is why
    there are none."""

    id: str
    about: str
    tests: list[tuple[str, str]]
    why: str


def table() -> list[Row]:
    rows = []
    for line in (__doc__ or "").splitlines():
        if not re.match(r"(?:[LROE]\d+|defect \d+) \|", line):
            continue
        name, about, where = line.split(" | ")
        if where.startswith(_NOT_HERE):
            rows.append(Row(name, about, [], where.removeprefix(_NOT_HERE)))
            continue
        tests = [word.partition("::") for word in where.split()]
        places = [(f"{PLACES[path[0]]}{path[1:]}", test) for path, _, test in tests]
        rows.append(Row(name, about, places, ""))
    return rows


@functools.cache
def functions_in(path: Path) -> dict[str, str]:
    """The test functions in a file, in classes or not, with what is said of each."""
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test_")
    }


def ids_in(name: str, said: str) -> Iterator[str]:
    """The cases that a test's name and docstring name; "O31 to O37" are seven."""
    for given in _NAMED.findall(name):
        yield given.upper()
    for letter, first, last in _ID.findall(said):
        for number in range(int(first), int(last or first) + 1):
            yield f"{letter}{number:02}"


def test_every_case_and_defect_has_its_tests() -> None:
    """The table names each case once, and tests that there are."""
    rows = table()
    cases = [row.id for row in rows if not row.id.startswith("defect")]
    assert cases == [f"{letter}{one:02}" for letter, them in CASES.items() for one in them]
    assert {int(row.id.split()[1]) for row in rows if row.id.startswith("defect")} == DEFECTS
    missing = [
        f"{row.id}: {path}::{test}"
        for row in rows
        for path, test in row.tests
        if not (TESTS / path).is_file() or test not in functions_in(TESTS / path)
    ]
    assert missing == []
    assert all(row.about and (row.tests or row.why) for row in rows)
    twice = [row.id for row in rows if len(set(row.tests)) != len(row.tests)]
    assert twice == []


def test_a_case_that_a_test_names_is_in_the_table_too() -> None:
    """Who reads the test finds the case, and nobody finds another one's."""
    known = {(row.id, *test) for row in table() for test in row.tests}
    found = set()
    for place in PLACES.values():
        for file in sorted((TESTS / place).glob("test_*.py")):
            path = str(file.relative_to(TESTS))
            if file != Path(__file__):
                for name, said in functions_in(file).items():
                    found |= {(one, path, name) for one in ids_in(name, said)}
    assert sorted(found - known) == []
    assert found, "none is named anywhere"
