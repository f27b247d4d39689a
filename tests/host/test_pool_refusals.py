"""What a pool refuses: what is another's, what is not there, and what nobody can tell."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.directory import projects
from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.image.backend import ImageBackend
from localvolume.backends.model import BackendFailed, Impossible, NotThisVolume, Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.backends.pool.records import Records, UnreadableRecord, decode, encode
from localvolume.backends.pool.survey import survey
from tests.host.support_failing import dead_filesystem
from tests.host.support_images import run_here
from tests.host.support_pools import config_of, offer, store_in, tree, wish
from tests.host.support_privileges import CAP_SYS_ADMIN, without_capability
from tests.suite.until import until

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    place = tmp_path / "pool"
    place.mkdir(0o755)
    return place


@pytest.fixture
def store(where: Path) -> Iterator[PoolStore]:
    with store_in(where, must_be_mounted=False) as store:
        yield store


class TestCopies:
    """The record of a copy is made from what a look found, and the volume may change until then."""

    @pytest.mark.parametrize("copy", [{"snapshot_of": "pvc-1"}, {"made_from": "pvc-1"}])
    def test_of_a_volume_that_has_grown_meanwhile(
        self, store: PoolStore, where: Path, copy: dict[str, str]
    ) -> None:
        seen = offer(store, store.make(wish()))
        store.grow(seen, 2 << 20)
        with pytest.raises(BackendFailed, match="pvc-1 has grown meanwhile"):
            store.copy(wish("copy", **copy), seen)
        assert set(tree(where)) == {"pvc-1"}
        assert set(store.look().records) == {"pvc-1"}

    @pytest.mark.parametrize("copy", [{"snapshot_of": "pvc-1"}, {"made_from": "pvc-1"}])
    def test_of_a_volume_that_was_given_to_another_meanwhile(
        self, store: PoolStore, where: Path, copy: dict[str, str]
    ) -> None:
        seen = offer(store, store.make(wish()))
        store.offered(seen, given="another", generation=1)
        with pytest.raises(BackendFailed, match="pvc-1 was given to another claim meanwhile"):
            store.copy(wish("copy", **copy), seen)
        assert set(tree(where)) == {"pvc-1"}
        assert set(store.look().records) == {"pvc-1"}

    @pytest.mark.parametrize("end", ["removed", "purged"])
    def test_of_a_volume_that_is_gone_meanwhile(self, store: PoolStore, end: str) -> None:
        seen = offer(store, store.make(wish()))
        gone = store.retire(seen)
        if end == "purged":
            store.purge(gone, stop=threading.Event())
        with pytest.raises(NotThisVolume, match="pvc-1"):
            store.copy(wish("copy", snapshot_of="pvc-1"), seen)
        assert "copy" not in store.look().records


class TestAnothers:
    def test_a_volume_of_another_claim_is_not_handed_on(self, store: PoolStore) -> None:
        made = store.make(wish())
        with pytest.raises(NotThisVolume, match="another claim"):
            store.make(wish(claim_uid="somebody-elses"))
        assert store.make(wish()) == made

    def test_the_place_of_a_volume_whose_record_cannot_be_read(
        self, store: PoolStore, where: Path
    ) -> None:
        """Most volumes lie where their name says."""
        store.open()
        store.close()
        record = where / ".localvolume/records/pvc-2.json"
        record.write_text("torn")
        with pytest.raises(NotThisVolume, match="a volume whose record cannot be read"):
            store.make(wish(directory="pvc-2"))
        assert tree(where) == {}
        assert record.read_text() == "torn"

    def test_one_that_went_half_is_never_said_to_be_complete(self, where: Path) -> None:
        """It was nobody's, and is out of its place already: it can only go on going."""

        class Busy(DirectoryBackend):
            """Somebody is in it, once it lies where it was made."""

            def unmake(self, pool: int, path: str, record: Record) -> None:
                if os.path.lexists(f"{path}/.localvolume/making/{record.name}"):
                    raise BackendFailed("somebody is in it")
                super().unmake(pool, path, record)

        with store_in(where, backend=Busy(), must_be_mounted=False) as busy:
            made = busy.make(wish())
            with pytest.raises(BackendFailed, match="somebody is in it"):
                busy.take_away(made)
            assert busy.look().records["pvc-1"].state == "making"
            assert tree(where) == {".localvolume/making/pvc-1": "d"}
        with store_in(where, must_be_mounted=False) as store:
            store.take_away(made)
            assert store.look().records == {}
            assert tree(where) == {}


class TestNotThere:
    def test_nothing_is_done_with_a_volume_that_is_not_there(self, store: PoolStore) -> None:
        unknown = wish(state="made")
        for deed in (store.offered, store.retire):
            with pytest.raises(NotThisVolume, match=r"pvc-1 has no (record|volume to remove)"):
                deed(unknown)
        with pytest.raises(NotThisVolume, match="has no record"):
            store.grow(unknown, 8 << 20)
        store.forget(unknown)
        store.take_away(unknown)
        store.purge(unknown, stop=threading.Event())
        assert store.look().records == {}

    def test_nor_with_one_that_is_half_made_or_removed(self, where: Path) -> None:
        class Unable(DirectoryBackend):
            def make(self, pool: int, path: str, record: Record) -> Record:
                raise BackendFailed("not now")

        with store_in(where, backend=Unable(), must_be_mounted=False) as store:
            with pytest.raises(BackendFailed, match="not now"):
                store.make(wish())
            with pytest.raises(NotThisVolume, match="no volume to remove"):
                store.retire(wish())
            with pytest.raises(NotThisVolume, match="is making"):
                store.offered(wish())
        with store_in(where, must_be_mounted=False) as store:
            gone = store.retire(offer(store, wish()))
            with pytest.raises(NotThisVolume, match="is removed"):
                store.offered(wish())
            with pytest.raises(NotThisVolume, match="is removed"):
                store.grow(wish(), 8 << 20)
            assert store.look().records == {"pvc-1": gone}

    def test_a_look_from_beside_where_no_agent_ever_was(self, where: Path) -> None:
        assert "no agent has made a pool" in survey(config_of(where)).problem
        assert os.listdir(where) == []


class TestImpossible:
    def test_an_image_with_a_directory(self, where: Path, tmp_path: Path) -> None:
        backend = ImageBackend(run_here, str(tmp_path / "run"))
        with (
            store_in(where, backend=backend, must_be_mounted=False) as store,
            pytest.raises(Impossible, match="no directory of its own"),
        ):
            store.make(wish(backend="image", directory="pvc-1"))
        assert tree(where) == {}

    def test_names_that_no_record_has(self, tmp_path: Path) -> None:
        """Its name is a file's, and leads out of the pool at worst."""
        directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in ("", "..", "../pvc-1", "Capital", "x" * 241):
                with pytest.raises(Impossible, match="the volume's name"):
                    Records(directory).write(wish(name, "pvc-1"))
                with pytest.raises(UnreadableRecord, match="its name"):
                    decode(name, encode(wish(name, "pvc-1")))
        finally:
            os.close(directory)
        assert os.listdir(tmp_path) == []

    def test_a_project_that_is_in_use_however_often_one_is_drawn(self, tmp_path: Path) -> None:
        """Something else must be wrong, and looking on would never end."""
        fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with pytest.raises(BackendFailed, match="no free quota project"):
                projects.free_project(fd, [100_007], lambda _: 7)
        finally:
            os.close(fd)


class TestGround:
    def test_a_marker_that_is_no_file(self, store: PoolStore, where: Path) -> None:
        marker = where / ".localvolume/pool.json"
        marker.mkdir(0o700, parents=True)
        problem = store.look().problem
        assert "Is a directory" in problem
        assert "not ours" not in problem
        assert os.listdir(where / ".localvolume") == ["pool.json"]

    def test_a_marker_that_is_missing_where_no_volume_ever_was(
        self, store: PoolStore, where: Path
    ) -> None:
        """An agent was killed, say. What is not of its making stays."""
        before = store.open()
        store.close()
        ours = where / ".localvolume"
        (ours / "pool.json").unlink()
        (ours / ".new-0123456789abcdef").write_text("half a marker")
        (ours / "note").write_text("an administrator's")
        # Not while anybody knows of another: that one's disk may just not be mounted.
        assert "there is none" in store.look().problem
        with store_in(where, must_be_mounted=False) as later:
            assert later.open() != before
            assert tree(where) == {".localvolume/note": 'f b"an administrator\'s"'}

    def test_the_id_is_found_out_where_nobody_has_asked_yet(
        self, store: PoolStore, where: Path
    ) -> None:
        assert store.host_path(wish(state="made")) == str(where / "pvc-1")
        assert (where / ".localvolume/pool.json").exists()

    def test_closed_while_the_disk_does_not_answer(self, store: PoolStore, where: Path) -> None:
        """Who waits for it lets go of what is his, and of nothing that others work with."""
        store.open()
        problems: list[str] = []
        thread = threading.Thread(target=lambda: problems.append(store.look().problem))
        with store._session.using():
            with dead_filesystem(where):
                thread.start()
                task = Path(f"/proc/self/task/{thread.native_id}/stat")
                until(
                    task.read_text,
                    lambda told: told.rpartition(")")[2].split()[0] == "D",
                )
                store.close()
            thread.join()
            assert problems != [""]
            with store_in(where, must_be_mounted=False) as other:
                assert other.look().taken
        with store_in(where, must_be_mounted=False) as other:
            assert not other.look().problem


class TestQuotas:
    def test_a_size_is_not_said_to_be_enforced_without_a_project(self, where: Path) -> None:
        fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with pytest.raises(Impossible, match="the record has none"):
                DirectoryBackend().make(fd, str(where), wish(enforced=True))
        finally:
            os.close(fd)
        assert os.listdir(where) == []

    def test_where_they_were_turned_off_since_nothing_is_measured_and_nothing_lifted(
        self, where: Path
    ) -> None:
        with store_in(where, must_be_mounted=False) as store:
            store.open()
        backend, record = DirectoryBackend(), replace(wish(), project=100_000)
        fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
        try:
            assert backend.usage(fd, str(where), [record]) == {}
            backend.unmake(fd, str(where), record)
            # What else the kernel says is told: nothing is known then.
            with without_capability(CAP_SYS_ADMIN):
                with pytest.raises(PermissionError):
                    backend.usage(fd, str(where), [record])
                with pytest.raises(PermissionError):
                    backend.unmake(fd, str(where), record)
        finally:
            os.close(fd)
