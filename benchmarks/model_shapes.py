"""Parameter shapes of published models, from their `config.json`: sizes are known before any weights are fetched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webgym_cli.store.weights import Tensor

# The dtype of all these published models.
KIND = "BF16"

_QWEN_VOCABULARY = 151_936


def _text(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **more,
    }


def _qwen2(*sizes: int, vocab_size: int = _QWEN_VOCABULARY, tied: bool = True) -> dict[str, Any]:
    more = {"vocab_size": vocab_size, "tie_word_embeddings": tied, "max_position_embeddings": 32_768}
    rope = {"rope_type": "default", "rope_theta": 1_000_000.0}
    return {"model_type": "qwen2", **_text(*sizes), **more, "rope_parameters": rope}


def _qwen3_vl(*sizes: int, vision: tuple[int, int, int], tied: bool) -> dict[str, Any]:
    """`vision`: depth, hidden size and intermediate size of the vision tower."""
    depth, hidden, intermediate = vision
    rope = {"rope_type": "default", "rope_theta": 5_000_000.0, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    text = {"model_type": "qwen3_vl_text", "head_dim": 128, "vocab_size": _QWEN_VOCABULARY, "rope_parameters": rope}
    tower = {
        "model_type": "qwen3_vl",
        "depth": depth,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_heads": 16,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "spatial_merge_size": 2,
        "out_hidden_size": sizes[0],
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [5, 11, 17] if depth == 24 else [8, 16, 24],
    }
    text |= {"max_position_embeddings": 262_144, **_text(*sizes)}
    return {"model_type": "qwen3_vl", "tie_word_embeddings": tied, "text_config": text, "vision_config": tower}


# `config.json` values of each model that a recipe or a benchmark names, by hub id.
PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": _qwen2(896, 4864, 24, 14, 2),
    "Qwen/Qwen2.5-1.5B-Instruct": _qwen2(1536, 8960, 28, 12, 2),
    "Qwen/Qwen2.5-3B-Instruct": _qwen2(2048, 11_008, 36, 16, 2),
    "Qwen/Qwen2.5-7B-Instruct": _qwen2(3584, 18_944, 28, 28, 4, vocab_size=152_064, tied=False),
    "Qwen/Qwen3-VL-2B-Instruct": _qwen3_vl(2048, 6144, 28, 16, 8, vision=(24, 1024, 4096), tied=True),
    "Qwen/Qwen3-VL-4B-Instruct": _qwen3_vl(2560, 9728, 36, 32, 8, vision=(24, 1024, 4096), tied=True),
    "Qwen/Qwen3-VL-8B-Instruct": _qwen3_vl(4096, 12_288, 36, 32, 8, vision=(27, 1152, 4304), tied=False),
    "meta-llama/Llama-3.1-8B-Instruct": {
        "model_type": "llama",
        "vocab_size": 128_256,
        "tie_word_embeddings": False,
        "max_position_embeddings": 131_072,
        **_text(4096, 14_336, 32, 32, 8),
    },
}


def published_tensors(model: str) -> list[Tensor]:
    """Return the parameters of a published model by its hub id, named as in its weights files; none for an unknown one.

    The `-Thinking` variants have the shapes of the `-Instruct` ones.
    """
    config = PUBLISHED.get(model.replace("-Thinking", "-Instruct"))
    if config is None:
        return []
    text = config.get("text_config", config)
    parameters = list(_language(text, "model.language_model" if text is not config else "model"))
    if text is not config:
        parameters += _vision(config["vision_config"])
    if not config["tie_word_embeddings"]:
        parameters.append(("lm_head.weight", (text["vocab_size"], text["hidden_size"])))
    return [(name, KIND, shape) for name, shape in parameters]


def _language(text: dict[str, Any], stem: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = text["hidden_size"], text["intermediate_size"]
    head = text.get("head_dim") or hidden // text["num_attention_heads"]
    queries, keys = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    sizes = {"q": queries, "k": keys, "v": keys}
    layer: dict[str, tuple[int, ...]] = {
        f"self_attn.{name}_proj.weight": (size, hidden) for name, size in sizes.items()
    }
    if text["model_type"] == "qwen2":
        layer |= {f"self_attn.{name}_proj.bias": (size,) for name, size in sizes.items()}
    if text["model_type"] == "qwen3_vl_text":
        layer |= {"self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
    layer |= {
        "self_attn.o_proj.weight": (hidden, queries),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    yield f"{stem}.embed_tokens.weight", (text["vocab_size"], hidden)
    for number in range(text["num_hidden_layers"]):
        for name, shape in layer.items():
            yield f"{stem}.layers.{number}.{name}", shape
    yield f"{stem}.norm.weight", (hidden,)


def _vision(vision: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    merged, stem = hidden * vision["spatial_merge_size"] ** 2, "model.visual"
    patches = (hidden, vision["in_channels"], vision["temporal_patch_size"], patch, patch)
    yield from _layer(f"{stem}.patch_embed.proj", *patches)
    yield f"{stem}.pos_embed.weight", (vision["num_position_embeddings"], hidden)
    for number in range(vision["depth"]):
        block = f"{stem}.blocks.{number}"
        yield from _layer(f"{block}.norm1", hidden)
        yield from _layer(f"{block}.norm2", hidden)
        yield from _layer(f"{block}.attn.qkv", 3 * hidden, hidden)
        yield from _layer(f"{block}.attn.proj", hidden, hidden)
        yield from _layer(f"{block}.mlp.linear_fc1", inner, hidden)
        yield from _layer(f"{block}.mlp.linear_fc2", hidden, inner)
    mergers = [(f"{stem}.merger", hidden)]
    # Deepstack mergers normalise after merging four patches, the last merger before.
    mergers += [
        (f"{stem}.deepstack_merger_list.{number}", merged) for number in range(len(vision["deepstack_visual_indexes"]))
    ]
    for name, normalised in mergers:
        yield from _layer(f"{name}.norm", normalised)
        yield from _layer(f"{name}.linear_fc1", merged, merged)
        yield from _layer(f"{name}.linear_fc2", vision["out_hidden_size"], merged)


def _layer(name: str, *shape: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]
