import pytest

from webgym_cli.errors import SettingsError
from webgym_cli.serve import weights


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """What the hub says of each model: None where it can't be reached."""
    known: dict[str, bool | None] = {}
    monkeypatch.setattr(weights, "_is_on_hub", lambda model: known.get(model))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/tiny").mkdir(parents=True)
    (tmp_path / "models/tiny/tokenizer.json").write_text("{}")
    return known


def test_a_folder_and_a_model_of_the_hub(hub):
    hub["org/known"] = True
    for model in ("models/tiny", "org/known", "org/who-knows"):
        weights.require_model(model, served=False)
    weights.require_model("org/known", served=True)


@pytest.mark.parametrize("model", ["models/tny", "./models/tny"])
def test_a_mistyped_folder_is_named(hub, model):
    with pytest.raises(SettingsError, match=f"no folder {model}") as caught:
        weights.require_model(model, served=False)
    assert "models/tiny" in caught.value.hint


def test_a_model_that_is_served_at_once_must_be_within_reach(hub):
    hub["org/mistyped"] = False
    with pytest.raises(SettingsError, match="no folder org/mistyped, and no such model is on the hub"):
        weights.require_model("org/mistyped", served=True)
    with pytest.raises(SettingsError, match="no folder org/who-knows, and the hub can't be reached"):
        weights.require_model("org/who-knows", served=True)
    with pytest.raises(SettingsError, match=r"config\.json is missing"):
        weights.require_model("models/tiny", served=True)
