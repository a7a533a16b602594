"""The trainer with pictures: a tiny Qwen3-VL, as webgym builds it."""

import json
import unittest

import torch
from episodes import plain_critic, prompt, webrl
from tiny import ALONE, SHIPPED, assert_same, options, scores, scratch, several, train, weights_of, write_batch, written

from webgym_cli.testing import tiny_model_build
from webgym_cli.trainer.data import read_batch
from webgym_cli.trainer.model.inputs import FLASH_ARGUMENTS
from webgym_cli.trainer.model.model import load_network
from webgym_cli.trainer.options import TrainingError
from webgym_cli.trainer.ppo.batch_targets import load_targets
from webgym_cli.trainer.ppo.ppo_trainer import PolicyGradientTrainer
from webgym_cli.trainer.webrl.webrl_batch import collect_states

check = unittest.TestCase()
SIZES = {"small": (64, 32), "large": (96, 64)}
"""2 and 6 tokens: one for each 32 x 32 pixels."""


def vision_model(folder):
    from transformers import Qwen3VLForConditionalGeneration

    tokenizer = tiny_model_build.build_tokenizer(["one two three"], [], 300)
    sizes = {"hidden": 32, "vision_hidden": 32, "layers": 2, "heads": 2, "head_dim": 16, "vision_depth": 2}
    torch.manual_seed(1)
    config = tiny_model_build.model_config({**sizes, "tie_embeddings": False}, tokenizer)
    tiny_model_build.save(folder, Qwen3VLForConditionalGeneration(config).float(), tokenizer, 32 * 32)
    return folder


def pictures(place):
    from PIL import Image

    for name, (width, height) in SIZES.items():
        chance = torch.Generator().manual_seed(width)
        values = torch.randint(256, (height * width * 3,), generator=chance, dtype=torch.uint8)
        Image.frombytes("RGB", (width, height), bytes(values.tolist())).save(place / f"{name}.png")


def row(number, names, model):
    """Return a row with these pictures between its words."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model)
    chance = torch.Generator().manual_seed(number)
    ids = torch.randint(200, (3,), generator=chance).tolist()
    for name in names:
        width, height = SIZES[name]
        count = width * height // 32**2
        ids += [config.vision_start_token_id, *[config.image_token_id] * count, config.vision_end_token_id, 7 + number]
    answer = torch.randint(200, (4 + number,), generator=chance).tolist()
    mask = [0] * len(ids) + [1] * len(answer)
    images = {"images": [f"../{name}.png" for name in names], "sizes": [SIZES[name] for name in names]}
    return {"input_ids": ids + answer, "mask": mask, "number": number, "step": 0, **images}


def seen(place):
    """Write a model and a batch of which some episodes saw pictures; return the model's folder and the rows."""
    model = vision_model(place / "model")
    pictures(place)
    shown = [["small"], [], ["large", "small"], ["large"], [], ["small", "small"]]
    rows = [row(number, names, model) for number, names in enumerate(shown)]
    write_batch(place / "data", rows, rewards=[1.0, 0, 0, 1, 1, 0], groups=[0, 0, 0, 1, 1, 1])
    return model, rows


def plain(model, place, rows):
    """Return the log-probs of the trained tokens by transformers' own processor and forward pass."""
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModelForImageTextToText

    network = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32).eval()
    processor, calls = AutoImageProcessor.from_pretrained(model), []
    for entry in rows:
        ids, mask = torch.tensor(entry["input_ids"]), torch.tensor(entry["mask"], dtype=torch.bool)
        given = {}
        if entry["images"]:
            images = [Image.open(place / "data" / name) for name in entry["images"]]
            given = dict(processor(images=images, return_tensors="pt"))
            given["mm_token_type_ids"] = (ids == network.config.image_token_id).int()[None]
        with torch.no_grad():
            logs = network(input_ids=ids[None], **given).logits[0, :-1].log_softmax(-1)
        calls.append(logs.gather(-1, ids[1:, None])[:, 0][mask[1:]])
    return torch.cat(calls)


def test_the_vision_tower_is_not_given_the_lengths_of_the_text():
    given = []
    with scratch() as place:
        network = load_network(vision_model(place / "model"), "sdpa", torch.float32)
    tower = network.model.visual
    tower.forward = lambda *inputs, **options: given.append((inputs, options))
    tower("pixels", grid_thw="grid", **dict.fromkeys(FLASH_ARGUMENTS, 1))
    check.assertEqual(given, [(("pixels",), {"grid_thw": "grid"})])


def test_log_probs_with_pictures_equal_a_plain_forward_pass():
    with scratch() as place:
        model, rows = seen(place)
        wanted = plain(model, place, rows)
        for packed in (True, False):
            for attention in ("sdpa", "eager"):
                given = {"use_remove_padding": packed, "attn_implementation": attention}
                result = scores(place, model, model=given, actor={"ppo_max_token_len_per_gpu": 60})
                torch.testing.assert_close(result, wanted, atol=1e-5, rtol=1e-5)


def test_what_sees_is_frozen_unless_it_is_to_learn():
    with scratch() as place:
        model, rows = seen(place)
        before = weights_of(model)
        for frozen in (True, False):
            out = str(place / f"out{frozen}")
            given = {"freeze_vision_tower": frozen, "enable_gradient_checkpointing": True}
            trained = train(place, model=given, trainer={"output_dir": out}, actor={"ppo_max_token_len_per_gpu": 60})
            after = weights_of(trained)
            assert before.keys() == after.keys()
            changed = {name for name in before if not before[name].equal(after[name])}
            assert any("language_model" in name for name in changed)
            assert any("visual" in name for name in changed) != frozen
            assert (trained / "preprocessor_config.json").is_file()
            result = scores(place, trained, actor={"ppo_max_token_len_per_gpu": 60})
            torch.testing.assert_close(result, plain(trained, place, rows), atol=1e-5, rtol=1e-5)


def test_pictures_that_are_not_what_was_seen_are_refused():
    with scratch() as place:
        _, rows = seen(place)
        for change, wanted in (
            ({"sizes": [(32, 32)]}, "small.png is not the picture that the policy saw, which had 32x32 pixels"),
            ({"images": ["../large.png"], "sizes": [SIZES["large"]]}, "saw 2 tokens of pictures, .* makes 6"),
            ({"images": [], "sizes": []}, "2 tokens are of pictures, but it lists none"),
            ({"images": ["../none.png"]}, "line 1: .*none.png: can't be read"),
        ):
            write_batch(place / "data", [rows[0] | change], rewards=[1.0], groups=[0])
            with check.assertRaisesRegex(TrainingError, wanted):
                PolicyGradientTrainer(options(place, actor={"ppo_max_token_len_per_gpu": 60}), ALONE).run()


def test_two_processes_equal_one_whoever_of_them_has_a_picture():
    with scratch() as place:
        seen(place)
        steps = {"ppo_mini_batch_size": 3, "ppo_max_token_len_per_gpu": 40}
        learning = {"freeze_vision_tower": False, "enable_gradient_checkpointing": True}
        models = {"plain": {}, "padded": {"use_remove_padding": False}, "zero1": {}}
        models |= {"zero2": learning, "zero3": learning}
        kinds = {name: {"actor": steps, "model": model} for name, model in models.items()}
        zeros = {name: {"deepspeed": str(SHIPPED / f"ds_config_cpu_{name}.json")} for name in kinds if "zero" in name}
        several(*(written(place, name, **given, trainer=zeros.get(name, {})) for name, given in kinds.items()))
        alone = {}
        for name, given in kinds.items():
            alone[name] = train(place, **given, trainer={"output_dir": str(place / f"{name} alone")})
        for name, result in alone.items():
            assert_same(result, place / name / result.name, atol=5e-5, rtol=1e-3)


def phase_seen(place):
    """Write a model and three episodes of two steps each for WebRL, all but one step with pictures; return the rows."""
    model = vision_model(place / "model")
    pictures(place)
    shown, rows = [["small"], ["large"], ["small", "large"], [], ["large"], ["small"]], []
    for at, names in enumerate(shown):
        fields = {"number": at // 2, "step": at % 2, "replayed": False, "last": bool(at % 2)}
        rows.append(row(at, names, model) | fields)
    for at, result in enumerate(rows):
        after = rows[at] if result["last"] else rows[at + 1]
        ids = after["input_ids"][: after["mask"].index(1)]
        result |= {"next_prompt": ids, "next_images": after["images"], "next_sizes": after["sizes"]}
    write_batch(place / "data", rows, rewards=[1.0, 0.0, 1.0], groups=[0, 1, 2])
    return model, rows


def plain_values(model, critic, place, rows):
    """Return V of the prompts by transformers and the critic's heads."""
    from PIL import Image
    from transformers import AutoImageProcessor

    (body, heads), processor, smallests = plain_critic(critic), AutoImageProcessor.from_pretrained(model), []
    for entry in rows:
        ids, given = torch.tensor(prompt(entry)), {}
        if entry["images"]:
            images = [Image.open(place / "data" / name) for name in entry["images"]]
            given = dict(processor(images=images, return_tensors="pt"))
            given["mm_token_type_ids"] = (ids == body.config.image_token_id).int()[None]
        with torch.no_grad():
            state = body(input_ids=ids[None], **given).last_hidden_state[0, -1]
            smallests.append(min(float(head(state).softmax(-1)[1]) for head in heads))
    return torch.tensor(smallests)


def test_critic_and_actor_of_webrl_learn_from_pictures():
    with scratch() as place:
        model, rows = phase_seen(place)
        cut = {"ppo_max_token_len_per_gpu": 60}
        first = train(place, **webrl(actor=cut, trainer={"output_dir": str(place / "first")}))
        fields = {"lam": 0.0}  # the advantage is then the outcome less the value
        trained = train(place, **webrl(webrl=fields, actor=cut, critic={"path": str(first / "critic")}))
        digest = json.loads(next(trained.parent.glob("*/trainer_state.json")).read_text())["digest"]
        held = load_targets(trained.parent, digest).tensors
        lengths = [sum(entry["mask"]) for entry in rows]
        sums = torch.stack([part.sum() for part in plain(model, place, rows).split(lengths)])
        torch.testing.assert_close(held["reference"], sums, atol=1e-4, rtol=1e-4)
        outcome = torch.tensor([1.0, 1, 0, 0, 1, 1])
        value = plain_values(model, trained / "critic", place, rows)
        torch.testing.assert_close(held["advantages"], outcome - value, atol=1e-4, rtol=1e-3)


def test_the_same_words_beside_another_picture_are_another_state():
    with scratch() as place:
        _, rows = phase_seen(place)
        from PIL import Image

        Image.new("RGB", SIZES["small"]).save(place / "other.png")
        twin = rows[0] | {"number": 1, "images": ["../other.png"]}
        write_batch(place / "data", [rows[0], twin, rows[0] | {"number": 2}], rewards=[1.0, 0.0, 1.0], groups=[0, 1, 2])
        states = collect_states(read_batch(place / "data"), ends=False)
        check.assertEqual(states.before.tolist(), [0, 2, 0])
        names = [train_row.images[0].path.name for train_row in states.rows]
        check.assertEqual(names, ["small.png", "large.png", "other.png"])


def test_two_processes_of_webrl_equal_one_whoever_of_them_has_a_picture():
    with scratch() as place:
        phase_seen(place)
        given = webrl(actor={"ppo_mini_batch_size": 3, "ppo_max_token_len_per_gpu": 60})
        trained = train(place, **given)
        kinds = {"plain": {}, "zero2": {"deepspeed": str(SHIPPED / "ds_config_cpu_zero2.json")}}
        several(*(written(place, name, **given, trainer=trainer) for name, trainer in kinds.items()))
        for name in kinds:
            result = place / name / trained.name
            assert_same(trained, result, atol=5e-5, rtol=1e-3)
            assert_same(trained / "critic", result / "critic", atol=5e-5, rtol=1e-3)
