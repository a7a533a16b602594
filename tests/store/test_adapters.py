"""Which adapter the current policy has, and which model that is on."""

import pytest

from tests.records.builders import new_run, published
from tests.serve.fakes import adapter
from webgym_cli.config.load import load
from webgym_cli.records.checkpoint import LoraAdapter
from webgym_cli.store.adapters import find_adapter, is_plain_adapter, plan_adapter
from webgym_cli.store.run import RunDir

WANTED = LoraAdapter(base="", rank=4, alpha=8, targets="all", vision=False)
SETTINGS = load(overrides=["policy_config.base_model=base"])


@pytest.fixture
def run(tmp_path):
    return new_run(tmp_path / "run", SETTINGS)


def trained(run, version, base, *, has_adapter=True):
    checkpoint = published(run, SETTINGS, version, adapter=WANTED.model_copy(update={"base": base}))
    folder = run.checkpoints / checkpoint.name
    if has_adapter:
        adapter(folder / "adapter", b"")
    return folder


def test_the_first_adapter_is_a_new_one_on_the_policy(run):
    start = plan_adapter(run, SETTINGS, WANTED)
    assert (start.model, start.folder, start.adapter.base) == ("base", None, "base")
    assert find_adapter(run, SETTINGS) is None


@pytest.mark.parametrize("after_others", [False, True])
def test_the_next_goes_on_with_it_on_the_same_model_wherever_the_run_is(run, tmp_path, after_others):
    base = "base"
    if after_others:  # all weights were trained before
        base = published(run, SETTINGS, 1).name
    folder = trained(run, 2, base)
    moved = RunDir(run.root.rename(tmp_path / "elsewhere"))
    start = plan_adapter(moved, SETTINGS, WANTED)
    assert start.model == (str(moved.checkpoints / base) if after_others else "base")
    assert (start.folder, start.adapter.base) == (moved.checkpoints / folder.name / "adapter", base)
    assert find_adapter(moved, SETTINGS) == (start.model, start.folder)


@pytest.mark.parametrize(
    ("base", "has_adapter", "wanted", "renew"),
    [
        ("base", True, WANTED.model_copy(update={"rank": 8}), False),
        ("base", True, WANTED.model_copy(update={"vision": True}), False),
        ("base", True, WANTED, True),
        ("base", False, WANTED, False),
        ("another", True, WANTED, False),
    ],
)
def test_else_a_new_one_is_put_on_the_merged_weights(run, base, has_adapter, wanted, renew):
    folder = trained(run, 1, base, has_adapter=has_adapter)
    start = plan_adapter(run, SETTINGS, wanted, renew=renew)
    assert (start.model, start.folder) == (str(folder), None)
    assert start.adapter == wanted.model_copy(update={"base": folder.name})


@pytest.mark.parametrize(
    ("config", "plain"),
    [({}, True), ({"use_dora": True}, False), ({"modules_to_save": ["lm_head"]}, False), ({"bias": "all"}, False)],
)
def test_what_more_than_two_matrices_a_layer_needs_is_not_plain(tmp_path, config, plain):
    assert is_plain_adapter(tmp_path) is False
    adapter(tmp_path, b"", **config)
    assert is_plain_adapter(tmp_path) is plain
