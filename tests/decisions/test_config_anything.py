"""Whatever stands in the configuration, the agent gets a configuration or reasons, nothing else."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from localvolume.config import loading
from localvolume.config.model import ConfigurationInvalid
from localvolume.config.schema import describe
from tests.suite.chance import examples

TOP = [key.name for key in describe() if "." not in key.name]
INNER = [key.name.rpartition(".")[2] for key in describe() if "." in key.name]
NESTED = ["matchExpressions", "matchFields", "key", "operator", "values", "effect"]
VALUES = ["/mnt/a", "/mnt/a/b", "", "In", "Exists", "yes", "5m", "a", "*", "[", "/scripts/shred.sh"]
WORDS = st.sampled_from([*TOP, *INNER, *NESTED, *VALUES])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=4) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)
CLASSES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.fixed_dictionaries(
        {}, optional={name: SCALARS | st.lists(SCALARS, max_size=2) for name in INNER}
    ),
    max_size=3,
)


def read(key: str, text: str) -> None:
    source = loading.Source("file", key, text)
    problems = None
    try:
        loading.build([source], host_checks=False)
    except ConfigurationInvalid as invalid:
        problems = invalid.problems
    assert problems is None or problems
    for problem in problems or ():
        assert problem.file
        assert problem.reason
        assert len(str(problem).splitlines()) == 1


@given(st.sampled_from(TOP), TREES)
@settings(max_examples=examples(300))
def test_any_tree(key: str, tree: Any) -> None:
    read(key, yaml.safe_dump(tree, allow_unicode=True))


@given(CLASSES)
@settings(max_examples=examples(300))
def test_any_classes(classes: Any) -> None:
    read("storageClassMap", yaml.safe_dump(classes))


@given(st.sampled_from(TOP), st.text(max_size=40) | st.text(alphabet="a:-[]{}&*!|>'\"%@ \n#?"))
@settings(max_examples=examples(500))
def test_any_text(key: str, text: str) -> None:
    read(key, text)


@pytest.mark.parametrize("key", TOP)
def test_references_to_oneself(key: str) -> None:
    for text in ("&a [*a]", "&a {x: *a}", "&a {<<: *a, x: *a}", "fast: &a {selector: [*a]}"):
        with pytest.raises(ConfigurationInvalid):
            loading.build([loading.Source("file", key, text)])
