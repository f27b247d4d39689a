"""What the environment tells the agent, by the names that upstream, kutti and elastic use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from localvolume.config import variables
from localvolume.config.variables import Variable


class EnvironmentInvalid(Exception):
    """Variables are missing or wrong: correct the DaemonSet. `problems` has one text for each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnvironment:
    """What the pod tells its agent.

    `kubeconfig` None leaves the choice of access to `kube.access.auth`. `kubelet_directory` is
    where the mounts of pods are; None if no kubelet runs. `records_directory` is for the records of
    volumes that can carry none themselves; None if there is none. `namespace` is that of the pod
    and of cleaning Jobs; `pod_name` is "" if nothing names the pod. `job_image` is for cleaning
    Jobs; without one `useJobForCleaning` is refused.
    """

    node_name: str
    namespace: str = variables.MY_NAMESPACE.default
    pod_name: str = ""
    job_image: str | None = None
    kubeconfig: str | None = None
    kubelet_directory: str | None = None
    records_directory: str | None = None
    confined: bool = False
    """Whether, by the manifests, policies confine the agent to its node; the agent checks that."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> "AgentEnvironment":
        """Read the variables; an empty one counts as unset. Raises EnvironmentInvalid.

        KUTTI_NODE_NAME can replace MY_NODE_NAME, and must not differ from it. The same holds for
        elastic's NODE_NAME if DRIVER_KIND is set.
        """
        names = [variables.MY_NODE_NAME, variables.KUTTI_NODE_NAME]
        if variables.DRIVER_KIND.text(environ):
            names.append(variables.NODE_NAME)
        own, *others = names
        name = own.text(environ)
        problems = [
            f"{one} {one.text(environ)!r} is not {own} {name!r}"
            for one in others
            if name and one.text(environ) not in ("", name)
        ]
        node = next((one for one in names if one.text(environ)), own)
        values: dict[str, Any] = {}
        for field, variable in {"node_name": node, **_FIELDS}.items():
            try:
                values[field] = variable.read(environ)
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise EnvironmentInvalid(problems)
        return cls(**values)


_FIELDS: Final[Mapping[str, Variable[Any]]] = {
    "namespace": variables.MY_NAMESPACE,
    "pod_name": variables.MY_POD_NAME,
    "job_image": variables.JOB_CONTAINER_IMAGE,
    "kubeconfig": variables.KUBECONFIG,
    "kubelet_directory": variables.KUBELET_DIR,
    "records_directory": variables.RECORDS_DIR,
    "confined": variables.MUST_BE_CONFINED,
}
