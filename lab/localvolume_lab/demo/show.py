"""The whole performance: what it needs is made, the story told, everything removed.

Three things see to it that nothing stays: the `finally`s here; the keeper, a process that outlives
us whatever happens; and the kernel, for mounts (our mount namespace) and loop devices (autoclear).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
import time
from dataclasses import dataclass

from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError
from localvolume_lab.demo import clusters, hold, own, signals, stage
from localvolume_lab.demo.cluster import Names, stand_in
from localvolume_lab.demo.keeper import Keeper
from localvolume_lab.demo.machine import Machine
from localvolume_lab.demo.narrator import Narrator
from localvolume_lab.demo.product import Product
from localvolume_lab.demo.story import Story
from localvolume_lab.demo.sweep import SWEEP_SECONDS
from localvolume_lab.demo.witness import NotSeen, Witness
from localvolume_lab.sandbox.sandbox import Sandbox


@dataclass(frozen=True)
class Options:
    """What was asked for; `kubeconfig` names the user's own cluster, `pace` is in seconds."""

    real: bool = False
    hold: bool = False
    kubeconfig: str = ""
    yes: bool = False
    pace: float | None = None


def show(options: Options) -> int:
    """Exit status: 0 all was shown, 1 something did not come to pass or something is left, 2 it
    cannot be shown here or was not wanted, 128 + n ended by signal n."""
    name = f"localvolume-demo-{secrets.token_hex(4)}"
    home = f"{os.path.realpath(tempfile.gettempdir())}/{name}"
    narrator = Narrator(pace=options.pace, home=home)
    signals.raise_interrupted()
    try:
        kubeconfig = os.path.abspath(options.kubeconfig) if options.kubeconfig else ""
        if kubeconfig and not _allowed(options, narrator, kubeconfig, name):
            return 2
        return Performance(options, narrator, name, home, kubeconfig).run()
    except signals.Interrupted as interrupted:
        # Before anything was made, or in the instants when the keeper is alone in charge.
        return 128 + interrupted.number


def _allowed(options: Options, narrator: Narrator, kubeconfig: str, name: str) -> bool:
    try:
        server = own.reach(kubeconfig)
    except AccessInvalid as error:
        narrator.trouble(f"localvolume demo: {error}")
        return False
    own.introduce(narrator, server, Names.unique(name))
    if options.yes:
        return True
    answer = narrator.ask("Show it in this cluster? [y/N]")
    if answer is None:
        narrator.trouble("Nobody can be asked here: say --yes if that is all right.")
    elif not answer:
        narrator.plain("Nothing was done. Without a kubeconfig the demo runs in a sandbox.")
    return bool(answer)


class Performance:
    """One run. All that is made, but in the user's cluster, lies below `home`."""

    def __init__(
        self, options: Options, narrator: Narrator, name: str, home: str, kubeconfig: str
    ) -> None:
        self._options = options
        self._narrator = narrator
        self._name = name
        self._home = home
        self._kubeconfig = kubeconfig
        self._machine: Machine | None = None

    def run(self) -> int:
        """Everything from the keeper to the last sentence."""
        narrator = self._narrator
        keeper = Keeper(self._home, kubeconfig=self._kubeconfig, name=self._name)
        status = 1
        try:
            self._on_stage(keeper)
            status = 0
        except signals.Interrupted as interrupted:
            narrator.close_board()
            narrator.plain(f"\nInterrupted ({interrupted}).")
            status = 128 + interrupted.number
        except stage.NoStage as error:
            narrator.trouble(f"localvolume demo: {error}")
            status = 2
        except (NotSeen, ApiError, AccessInvalid, OSError) as error:
            narrator.trouble(f"localvolume demo: {error}")
        finally:
            signals.ignore()
            narrator.close_board()
            left = self._remove(keeper)
        if left:
            narrator.trouble(f"Left behind: {'; '.join(left)}")
            return status or 1
        took = f"Done in {time.monotonic() - narrator.began:.0f} s. " if status == 0 else ""
        narrator.title(f"{took}Everything is removed again.")
        return status

    def _on_stage(self, keeper: Keeper) -> None:
        where = stage.enter()
        self._narrator.title("localvolume demo: local disks as Kubernetes volumes, live")
        os.mkdir(self._home, 0o700)
        machine = self._machine = Machine(self._home, where)
        with contextlib.ExitStack() as stack:
            cluster = clusters.choose(
                stack,
                self._narrator,
                name=self._name,
                home=self._home,
                kubeconfig=self._kubeconfig,
                real=self._options.real,
            )
            story = self._perform(where, machine, keeper, cluster)
            signals.run_interruptibly(story)

    # --- the story -----------------------------------------------------------------------------

    async def _perform(
        self, where: stage.Stage, machine: Machine, keeper: Keeper, cluster: clusters.Cluster
    ) -> None:
        async with contextlib.AsyncExitStack() as stack:
            kubeconfig = cluster.kubeconfig
            sandbox: Sandbox | None = None
            if not kubeconfig:
                sandbox = await stack.enter_async_context(Sandbox())
                kubeconfig = str(sandbox.kubeconfig(f"{self._home}/kubeconfig"))
            await machine.prepare()
            self._introduce(where, machine, cluster)
            copies = not (cluster.no_copies or machine.no_copies)
            access = find_access(kubeconfig)
            client = await stack.enter_async_context(Client(access, user_agent="localvolume-demo"))
            agent = Product(keeper, "agent", f"{self._home}/agent.log")
            controller = Product(keeper, "controller", f"{self._home}/controller.log")
            stack.push_async_callback(controller.stop)
            stack.push_async_callback(agent.stop)
            narrator = self._narrator
            witness = Witness(
                client,
                cluster.names,
                alive=lambda: not agent.died() and not controller.died(),
                on_change=lambda: narrator.show_board(story.rows),
            )
            story = Story(
                narrator,
                machine,
                client,
                cluster.names,
                agent,
                # It would see to all of a cluster of the user's, and not to the demo alone.
                None if self._kubeconfig else controller,
                witness,
                directory=self._home,
                kubeconfig=kubeconfig,
                binder=cluster.binder,
                copies=copies,
            )
            watching = asyncio.create_task(witness.run())
            stack.push_async_callback(_end, watching)
            narrator.open_board()
            try:
                await story.tell()
            except NotSeen as error:
                words = "".join(
                    f"\nThe {one.what}'s last words:\n{one.tail()}"
                    for one in (agent, controller)
                    if one.pid
                )
                raise NotSeen(f"{error}{words}") from error
            finally:
                narrator.close_board()
            if not self._options.hold:
                narrator.plain()
                narrator.plain("To look at all of it yourself: make demo HOLD=1 (or --hold)")
                return
            if sandbox is not None:
                stand_in(sandbox.api, cluster.names, driver=copies)
            hold.introduce(
                narrator,
                cluster.names,
                agent,
                home=self._home,
                kubeconfig=kubeconfig,
                kubectl=cluster.kubectl,
                root=where.root,
                copies=copies,
                pods=sandbox is not None,
            )
            # Ctrl-C is how a person ends it: no failure.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            narrator.plain()

    def _introduce(self, where: stage.Stage, machine: Machine, cluster: clusters.Cluster) -> None:
        narrator = self._narrator
        narrator.say(f"Cluster  {cluster.description}")
        narrator.say(f"Machine  {where.description}")
        disks = ", ".join(disk.what for disk in machine.disks)
        narrator.say(f"Disks    {disks}")
        if machine.without:
            narrator.say(f"         no ext4 and no raw device: {machine.without}")
        if without := cluster.no_copies or machine.no_copies:
            narrator.say(f"         no snapshots: {without}")
        narrator.plain(f"   $DEMO    {self._home}")

    # --- the end -------------------------------------------------------------------------------

    def _remove(self, keeper: Keeper) -> list[str]:
        """Remove everything; returns what stayed, in words."""
        if self._kubeconfig:
            self._narrator.plain("Removing what was made in the cluster ...")
        left = self._machine.remove() if self._machine else []
        if complaint := keeper.close(SWEEP_SECONDS + 15.0):
            left.append(complaint)
        if os.path.lexists(self._home):
            left.append(self._home)
        return left


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
