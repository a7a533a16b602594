import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.builders import step
from tests.tables import each
from webgym_cli.agent.prompt import render
from webgym_cli.agent.tokens.tokens import ImageGrid, ModelTokens
from webgym_cli.errors import SettingsError
from webgym_cli.records.sample import Message
from webgym_cli.records.trajectory import PromptSpec, PromptVersion

GRID = ImageGrid(factor=32, min_pixels=4096, max_pixels=1280 * 1024)
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type == 'image' %} <|image_pad|> "
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} go{% endif %}"
)


@each(
    ("given", "size", "tokens"),
    [
        ((1280, 1024), (1280, 1024), 1280),  # 40 x 32: exactly the limit
        ((1000, 700), (992, 704), 682),  # 31.25 -> 31, 21.875 -> 22
        ((48, 64), (64, 64), 4),  # 1.5 -> 2, as Python rounds
        ((80, 64), (64, 64), 4),  # 2.5 -> 2, as Python rounds
        ((2000, 2000), (1120, 1120), 1225),  # ratio 1.74693: 1144.87 -> 35 x 32
        ((48, 16), (128, 64), 8),  # ratio 2.30940: 110.85 -> 4 x 32, 36.95 -> 2 x 32
        ((1, 1), (64, 64), 4),
    ],
)
def test_images_are_sized_as_the_processor_does(given, size, tokens):
    assert GRID.size(*given) == size
    assert GRID.tokens(*given) == tokens


@pytest.fixture
def model(tmp_path):
    """A model folder whose tokenizer has one token a word."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = ["?", "<|image_pad|>", "<user>", "look", "go", "here"]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    sizes = {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 4096, "longest_edge": 1310720}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(sizes))
    return tmp_path


def test_an_image_takes_as_many_tokens_as_its_size_says(model):
    messages = [Message(role="user", content=" <image>look <image>here")]
    ids = ModelTokens(str(model)).prompt_ids(messages, [(64, 64), (96, 64)])
    assert ids == [2, *[1] * 4, 3, *[1] * 6, 5, 4]


@pytest.mark.parametrize("version", (PromptVersion.VANILLA, PromptVersion.COMPLETE))
@pytest.mark.parametrize(("window", "limit"), [(0, None), (4, None), (4, 1), (4, 3), (1, 3)])
def test_every_image_that_is_sent_is_counted_once(model, version, window, limit):
    """Of a rendered prompt exactly `images` take tokens: rounds without their screenshot take none."""
    spec = PromptSpec(version=version, history_window=window, max_images=limit)
    past = [step(index) for index in range(6)]
    prompt = render(spec, "Do it.", "http://a/", past, step(6).observation)
    sizes = [(64, 32 * (2 + number)) for number in range(len(prompt.images))]
    ids = ModelTokens(str(model)).prompt_ids(prompt.messages, sizes)
    assert ids.count(1) == sum(2 * (2 + number) for number in range(min(window + 1, limit or 9)))


def spelled(tmp_path, prepend: str | None) -> ModelTokens:
    """Return a tokenizer of pairs of characters with the Qwen families' special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token=None))
    if prepend is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet() if prepend is None else list("▁abcdehlnoprstuwxyz ")
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["the page shows a list", "open the page, then the list"], trainer)
    specials = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|im_end|>more"]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in specials])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return ModelTokens(str(tmp_path))


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    """A tokenizer like the Qwen families'."""
    return spelled(tmp_path_factory.mktemp("model"), None)


WORDS = ["<|im_start|>", "<|im_end|>", "more", "the page ", " list", "\n", "  ", "a", "\u00e9", "<|im", "|>", "page"]


@given(words=st.lists(st.sampled_from(WORDS), max_size=12))
def test_a_text_has_the_ids_that_its_tokenizer_gives_it_whole(byte_level, words):
    text = "".join(words)
    assert byte_level._in_pieces
    assert byte_level.response_ids(text) == byte_level.tokenizer.encode(text, add_special_tokens=False).ids


def test_a_tokenizer_that_treats_the_first_piece_in_another_way_is_never_cut(tmp_path):
    tokens = spelled(tmp_path, "first")
    text = "the page<|im_end|>the page<|im_start|> the list"
    assert not tokens._in_pieces
    assert tokens.response_ids(text) == tokens.tokenizer.encode(text, add_special_tokens=False).ids


def test_the_grid_is_read_from_the_model_and_the_newer_file_of_processors_wins(model):
    assert ModelTokens(str(model)).grid == GRID
    newer = {"image_processor": {"patch_size": 14, "merge_size": 2, "min_pixels": 1, "max_pixels": 2}}
    (model / "processor_config.json").write_text(json.dumps(newer))
    assert ModelTokens(str(model)).grid == ImageGrid(28, 1, 2)


def test_a_response_has_no_template_and_a_model_all_its_files(model):
    assert ModelTokens(str(model)).response_ids("look here x") == [3, 5, 0]
    (model / "preprocessor_config.json").write_text("{}")
    with pytest.raises(SettingsError, match="not a Qwen-VL model"):
        _ = ModelTokens(str(model)).grid
    (model / "chat_template.jinja").unlink()
    (model / "tokenizer_config.json").write_text("{}")
    with pytest.raises(SettingsError, match="no chat template"):
        ModelTokens(str(model)).prompt_ids([Message(role="user", content="look")], [])
    (model / "tokenizer.json").unlink()
    for folder, words in ((model, r"no tokenizer\.json"), (model / "none", "no folder")):
        with pytest.raises(SettingsError, match=words):
            ModelTokens(str(folder))
