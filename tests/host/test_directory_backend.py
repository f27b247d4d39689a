"""The life of a directory volume: made, offered, grown, removed, purged."""

import os
import stat

from tests.host.support_pools import ON_EXT4, offer, pool_on, purge, store_in, tree, wish

pytestmark = ON_EXT4


def test_a_volume_from_its_making_to_its_purging() -> None:
    with pool_on() as (store, where):
        made = store.make(wish(mode=0o2770, uid=1000, gid=2000))
        found = (where / "pvc-1").stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o2770, 1000, 2000)
        assert (made.state, made.inode) == ("made", found.st_ino)
        assert store.host_path(made) == str(where / "pvc-1")
        offered = store.offered(made)
        assert store.offered(offered, "uid-1").volume_uid == "uid-1"
        (where / "pvc-1" / "file").write_text("data")
        grown = store.grow(offered, 5 << 20)
        assert (grown.size_bytes, grown.volume_uid) == (5 << 20, "uid-1")
        assert store.grow(grown, 1).size_bytes == 5 << 20
        gone = store.retire(grown)
        assert not (where / "pvc-1").exists()
        assert (where / ".localvolume/trash" / gone.trash / "file").read_text() == "data"
        assert gone.state == "removed"
        assert store.look().records == {"pvc-1": gone}
        assert store.retire(grown) == gone
        purge(store, gone)
        assert tree(where) == {}
        report = store.look()
        assert (report.problem, report.records, report.orphans) == ("", {}, [])


def test_umask_does_not_matter() -> None:
    with pool_on() as (store, where):
        before = os.umask(0o777)
        try:
            store.make(wish(directory="ns/claim", mode=0o777))
        finally:
            os.umask(before)
        assert stat.S_IMODE((where / "ns").stat().st_mode) == 0o755
        assert stat.S_IMODE((where / "ns/claim").stat().st_mode) == 0o777
        assert stat.S_IMODE((where / ".localvolume").stat().st_mode) == 0o700


def test_everything_is_known_again_by_the_next_agent() -> None:
    with pool_on() as (store, where):
        offered = offer(store, wish(directory="ns/claim"))
        gone = store.retire(offer(store, wish("pvc-2", "ns/other")))
        before = store.look()
        store.close()
        with store_in(where, known_ids=(before.id,)) as again:
            report = again.look()
            assert report.records == {"pvc-1": offered, "pvc-2": gone}
            assert (report.id, report.orphans, report.problem) == (before.id, [], "")
            assert again.attach_all() == {}
            assert again.make(wish(directory="ns/claim")) == offered
