"""Limits of reading and writing in control groups of v2, which not every machine has."""

from collections.abc import Iterator

import pytest

from tests.host.support_images import command
from tests.host.support_mounts import mount, umount
from tests.host.test_cgroups import (
    device,
    groups,
    kubelet,
    test_a_container_that_starts_later_is_limited_at_the_next_look,
    test_a_pod_is_limited_before_it_has_its_volume,
    test_a_pod_that_has_gone_is_no_failure,
    test_limits_are_set_one_by_one_and_taken_away,
    test_pods_are_found_and_nothing_that_a_pod_makes,
    test_what_changed_is_set_in_all_pods_that_use_it,
    test_without_its_group_a_pod_gets_no_volume,
)

__all__ = [
    "device",
    "groups",
    "kubelet",
    "test_a_container_that_starts_later_is_limited_at_the_next_look",
    "test_a_pod_is_limited_before_it_has_its_volume",
    "test_a_pod_that_has_gone_is_no_failure",
    "test_limits_are_set_one_by_one_and_taken_away",
    "test_pods_are_found_and_nothing_that_a_pod_makes",
    "test_what_changed_is_set_in_all_pods_that_use_it",
    "test_without_its_group_a_pod_gets_no_volume",
]


@pytest.fixture(scope="module", autouse=True)
def unified() -> Iterator[None]:
    """Control groups of v2, where systemd has them."""
    command("/run/modprobe", "loop")
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2")
    yield
    umount("/sys/fs/cgroup")
