"""Builds the tiny model. Runs inside the train role's interpreter: only the standard library and that role's packages.

    python tiny_model_build.py <folder> < arguments.json

The arguments: hidden, head_dim, layers, vocabulary, seed, texts, phrases. The same arguments give the same bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration

CONTROL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PLAIN = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
"""Tokens that stay in the text, as in Qwen's tokenizers."""
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen's tokenizers cut text before the merges: digits one by one."""
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\n' -}}"
    "{%- if message.content is string -%}{{- message.content -}}"
    "{%- else -%}{%- for part in message.content -%}"
    "{%- if part.type in ('image', 'image_url') -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- elif part.type == 'video' -%}{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}"
    "{%- else -%}{{- part.text -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "{{- '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)
PATCH, MERGE = 16, 2
MIN_PIXELS, MAX_PIXELS = 32 * 32, 1280 * 1024
VISION_HIDDEN, VISION_DEPTH = 64, 2


def build_tokenizer(arguments: dict[str, Any]) -> PreTrainedTokenizerFast:
    """Train the byte-level BPE and add the control tokens, the plain ones and the phrases."""
    tokenizer = Tokenizer(models.BPE())
    cut = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=arguments["vocabulary"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(arguments["texts"], trainer)
    tokenizer.add_special_tokens(CONTROL)
    plain = [AddedToken(text, special=False, normalized=False) for text in [*PLAIN, *arguments["phrases"]]]
    tokenizer.add_tokens(plain)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=8192
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_model(tokenizer: PreTrainedTokenizerFast, arguments: dict[str, Any]) -> Qwen3VLForConditionalGeneration:
    """Make the randomly initialised network."""
    hidden = arguments["hidden"]
    heads = hidden // arguments["head_dim"]
    token = tokenizer.convert_tokens_to_ids
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer) + -len(tokenizer) % 8,
            "hidden_size": hidden,
            "intermediate_size": 3 * hidden,
            "num_hidden_layers": arguments["layers"],
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": arguments["head_dim"],
            "max_position_embeddings": 8192,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
            "eos_token_id": token("<|im_end|>"),
            "pad_token_id": token("<|endoftext|>"),
        },
        vision_config={
            "depth": VISION_DEPTH,
            "hidden_size": VISION_HIDDEN,
            "intermediate_size": 2 * VISION_HIDDEN,
            "num_heads": 2,
            "in_channels": 3,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": hidden,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0],
        },
        image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    torch.manual_seed(arguments["seed"])
    model = Qwen3VLForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        eos_token_id=token("<|im_end|>"), pad_token_id=token("<|endoftext|>"), do_sample=True
    )
    return model


def write_processors(folder: Path) -> None:
    """Write the image and video processors' configuration; images keep their size within wide limits."""
    common = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "merge_size": MERGE,
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        "processor_class": "Qwen3VLProcessor",
    }
    image = {**common, "image_processor_type": "Qwen2VLImageProcessorFast"}
    video = {**common, "video_processor_type": "Qwen3VLVideoProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(image, indent=2))
    (folder / "video_preprocessor_config.json").write_text(json.dumps(video, indent=2))
    config = folder / "tokenizer_config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps({**values, "processor_class": "Qwen3VLProcessor"}, indent=2))


def main() -> None:
    """Build into the folder named on the command line and tell the size."""
    folder, arguments = Path(sys.argv[1]), json.load(sys.stdin)
    tokenizer = build_tokenizer(arguments)
    model = build_model(tokenizer, arguments)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    write_processors(folder)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    json.dump({"parameters": parameters, "vocabulary": len(tokenizer)}, sys.stdout)


if __name__ == "__main__":
    main()
