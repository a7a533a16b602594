"""Builds a tiny Qwen3-VL with random weights offline. The same arguments give the same bytes.

Runs as a script in the train environment, so it imports only the standard library, torch, transformers and tokenizers.
Reads its arguments as one JSON object from stdin (`tiny_model.TinyModel`, and `directory`, `texts` and `phrases`),
writes the model into `directory` and prints its size as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

END, IMAGE, VIDEO = "<|im_end|>", "<|image_pad|>", "<|video_pad|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
# Qwen's control tokens, which never occur in a response's text.
CONTROL = ("<|endoftext|>", "<|im_start|>", END, VISION_START, VISION_END, "<|vision_pad|>", IMAGE, VIDEO)
# Special tokens that stay visible in a response's text.
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

# Qwen's pre-tokenization; every digit is a token of its own.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Renders the same text as LLaMA-Factory's template `qwen3_vl_nothink`.
CHAT_TEMPLATE = """\
{%- macro parts(content) -%}
{%- if content is string -%}{{ content }}
{%- else -%}{%- for part in content -%}
{%- if part.type in ('image', 'image_url') or 'image' in part -%}<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type == 'video' or 'video' in part -%}<|vision_start|><|video_pad|><|vision_end|>
{%- elif 'text' in part -%}{{ part.text }}{%- endif -%}
{%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{{- '<|im_start|>user\\n<tool_response>\\n' + parts(message.content) + '\\n</tool_response><|im_end|>\\n' -}}
{%- else -%}
{{- '<|im_start|>' + message.role + '\\n' + parts(message.content) + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def build_tokenizer(texts: list[str], phrases: list[str], vocab_size: int) -> Any:
    """Return a byte-level BPE tokenizer with at most `vocab_size` tokens in total."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(CONTROL) - len(TAGS) - len(phrases),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in CONTROL])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in (*TAGS, *phrases)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=CONTROL[0])
    fast.chat_template = CHAT_TEMPLATE
    fast.model_max_length = 262144
    return fast


def model_config(arguments: dict[str, Any], tokenizer: Any) -> Any:
    """Return the Qwen3-VL configuration for these sizes."""
    from transformers import Qwen3VLConfig

    hidden, vision = arguments["hidden"], arguments["vision_hidden"]
    text_config = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": arguments["layers"],
        "num_attention_heads": arguments["heads"],
        "num_key_value_heads": max(1, arguments["heads"] // 2),
        "head_dim": arguments["head_dim"],
        "max_position_embeddings": 32768,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": _sections(arguments["head_dim"] // 2),
            "mrope_interleaved": True,
        },
        "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": arguments["tie_embeddings"],
        "dtype": "float32",
    }
    vision_config = {
        "depth": arguments["vision_depth"],
        "hidden_size": vision,
        "intermediate_size": 2 * vision,
        "num_heads": max(1, vision // 32),
        "out_hidden_size": hidden,
        "num_position_embeddings": 256,
        "deepstack_visual_indexes": [0],
        "dtype": "float32",
    }
    ids = tokenizer.convert_tokens_to_ids
    return Qwen3VLConfig(
        text_config=text_config,
        vision_config=vision_config,
        image_token_id=ids(IMAGE),
        video_token_id=ids(VIDEO),
        vision_start_token_id=ids(VISION_START),
        vision_end_token_id=ids(VISION_END),
        tie_word_embeddings=arguments["tie_embeddings"],
        dtype="float32",
    )


def _sections(frequencies: int) -> list[int]:
    """Return the numbers of rotary frequencies for time, height and width; interleaved, time takes the rest."""
    side = frequencies // 3
    return [frequencies - 2 * side, side, side]


def preprocessor(min_pixels: int) -> dict[str, Any]:
    """Return the common part of both preprocessor configurations. `shortest_edge` is a number of pixels, no edge."""
    return {
        "size": {"shortest_edge": min_pixels, "longest_edge": 16777216},
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": "Qwen3VLProcessor",
    }


def save(directory: Path, model: Any, tokenizer: Any, min_pixels: int) -> None:
    """Write all files of the model."""
    from transformers import GenerationConfig

    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.pad_token_id,
        eos_token_id=[tokenizer.eos_token_id, tokenizer.pad_token_id],
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
    )
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    settings = preprocessor(min_pixels)
    _write(directory / "preprocessor_config.json", {**settings, "image_processor_type": "Qwen2VLImageProcessorFast"})
    video = {**settings, "video_processor_type": "Qwen3VLVideoProcessor"}
    _write(directory / "video_preprocessor_config.json", video)
    named = directory / "tokenizer_config.json"
    _write(named, {**json.loads(named.read_text(encoding="utf-8")), "processor_class": "Qwen3VLProcessor"})


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Build the model described on stdin."""
    import torch
    from transformers import Qwen3VLForConditionalGeneration

    arguments = json.load(sys.stdin)
    directory = Path(arguments["directory"])
    torch.set_num_threads(1)
    tokenizer = build_tokenizer(arguments["texts"], arguments["phrases"], arguments["vocab_size"])
    torch.manual_seed(arguments["seed"])
    model = Qwen3VLForConditionalGeneration(model_config(arguments, tokenizer)).float()
    save(directory, model, tokenizer, arguments["min_pixels"])
    facts = {"parameters": sum(weight.numel() for weight in model.parameters()), "vocabulary": len(tokenizer)}
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
