"""The policy network, and the functions shared by all networks; the critics are in `critics.py`.

The policy's full logits are never materialised: its output layer is called with the labels and returns their log-probs
and entropies (`logprobs.py`). The layer's own `forward` is replaced, so that DeepSpeed's module hooks (gather weights,
reduce gradients) run for it too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from webgym_cli.config.rl import RlModelSettings
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.training_files import ADAPTER_WEIGHTS, VISION
from webgym_cli.records.unfit_models import find_unfit
from webgym_cli.trainer.model.inputs import FLASH_ARGUMENTS, Inputs
from webgym_cli.trainer.model.logprobs import token_log_probs
from webgym_cli.trainer.options import TrainingError
from webgym_cli.util.optional import map_known
from webgym_cli.util.text import first_line


class PolicyModel(nn.Module):  # type: ignore[misc]
    """A transformers model that returns log-probs and entropies of the trained tokens."""

    def __init__(self, network: Any, *, sampling: Sampling, chunk: int) -> None:
        super().__init__()
        self.network = network
        layer = network.get_output_embeddings()
        layer.forward = functools.partial(_layer_log_probs, layer, sampling=sampling, chunk=chunk)

    def forward(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probs [k] and entropies [k], float32, of the distribution that was sampled from."""
        states = hidden_states(self.network.base_model, inputs)
        log_probs, entropies = self.network.get_output_embeddings()(states, inputs.labels)
        return log_probs, entropies

    @contextmanager
    def without_adapter(self) -> Iterator[None]:
        """Disable the LoRA adapter inside the block."""
        from peft.tuners.tuners_utils import BaseTunerLayer  # type: ignore[import-not-found]

        layers = [layer for layer in self.network.modules() if isinstance(layer, BaseTunerLayer)]
        for layer in layers:
            layer.enable_adapters(False)
        try:
            yield
        finally:
            for layer in layers:
                layer.enable_adapters(True)


def refuse_unfit(network: Any, options: RlModelSettings) -> None:
    """Raise `TrainingError` for a model that would be trained by wrong log-probs."""
    problem, instead = find_unfit(network.config.get_text_config().to_dict(), packed=options.use_remove_padding)
    if problem:
        raise TrainingError(f"{network.name_or_path}: {problem}; {instead} trains it")


def hidden_states(transformer: Any, inputs: Inputs) -> torch.Tensor:
    """Return [k, H]: the hidden states that predict the trained tokens."""
    states = transformer(**inputs.arguments, use_cache=False).last_hidden_state
    hidden = states[inputs.before]
    # the blank image adds 0, but gives the vision tower gradients in all processes
    return hidden if inputs.blank is None else hidden + states[inputs.blank].sum() * 0.0


def _layer_log_probs(
    layer: Any, hidden: torch.Tensor, labels: torch.Tensor, *, sampling: Sampling, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Replace an output layer's forward pass."""
    # autocast would apply to the chunks' forward pass but not to the backward pass
    device = hidden.device.type
    kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else layer.weight.dtype
    bias = map_known(lambda given: given.to(kind), layer.bias)
    return token_log_probs(hidden.to(kind), layer.weight.to(kind), labels, bias=bias, sampling=sampling, chunk=chunk)


def model_folder(model: str) -> Path:
    """Return the folder of a model, downloaded from the hub unless it is local. Raises `TrainingError`."""
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model))
    except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise TrainingError(f"{model}: no folder, and not to be had from the hub: {first_line(error)}") from error


def attention_implementation(options: RlModelSettings, device: torch.device) -> str:
    """Return transformers' name of the attention implementation; packed rows without flash attention need our own."""
    from transformers.utils import is_flash_attn_2_available

    wanted: str = options.attn_implementation
    if wanted == "auto":
        wanted = "flash_attention_2" if device.type == "cuda" and is_flash_attn_2_available() else "sdpa"
    if wanted == "sdpa" and options.use_remove_padding:
        register_blocks()
        return BLOCKS
    return wanted


def load_network(folder: Path, implementation: str, dtype: torch.dtype, *, trusted: bool = False) -> Any:
    """Load a transformers model, text or vision-language. Raises `TrainingError`."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trusted)
        sees = hasattr(config, "vision_config")
        kind = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
        network = kind.from_pretrained(
            folder, dtype=dtype, attn_implementation=implementation, trust_remote_code=trusted
        )
    except (OSError, ValueError, ImportError) as error:
        raise TrainingError(f"{folder}: is no model that can be trained: {first_line(error)}") from error
    # other models would leave out a part of their attention (GPT-OSS' sinks), or not ask for it: sequences would mix
    if implementation == BLOCKS and not (network._supports_sdpa and network._supports_attention_backend):
        raise TrainingError(
            f"{folder}: packed sequences need flash attention with this model: set model.attn_implementation to eager, "
            "or model.use_remove_padding to false"
        )
    for name, module in network.named_modules():
        if f"{name.rpartition('.')[2]}." in VISION:
            module.register_forward_pre_hook(_without_lengths, with_kwargs=True)
    return network


def _without_lengths(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """Leave out the lengths of packed sequences: transformers 5.17 hands the text's arguments to the vision tower."""
    return inputs, {name: value for name, value in options.items() if name not in FLASH_ARGUMENTS}


def image_processor(folder: Path, network: Any, *, trusted: bool = False) -> Any | None:
    """Load a model's image processor; None for text models. Raises `TrainingError`."""
    if not hasattr(network.config, "vision_config"):
        return None
    import transformers

    try:
        return transformers.AutoImageProcessor.from_pretrained(folder, trust_remote_code=trusted)
    except (OSError, ValueError, ImportError) as error:
        raise TrainingError(f"{folder}: has no usable image processor: {first_line(error)}") from error


def configure_training(network: Any, options: RlModelSettings) -> None:
    """Set the trained parameters, the LoRA adapter and gradient checkpointing. Raises `TrainingError`."""
    for name, parameter in network.named_parameters():
        if options.freeze_vision_tower and any(part in name for part in VISION):
            parameter.requires_grad_(False)
    if options.lora_rank:
        _adapt(network, options)
    if options.enable_gradient_checkpointing:
        network.gradient_checkpointing_enable({"use_reentrant": False})


def _adapt(network: Any, options: RlModelSettings) -> None:
    """Inject a LoRA adapter into a model; only the adapter is trained."""
    from peft import LoraConfig, inject_adapter_in_model  # type: ignore[import-not-found]

    names = options.target_modules
    config = LoraConfig(
        r=options.lora_rank,
        lora_alpha=options.lora_alpha,
        target_modules=names if names == "all-linear" else [name.strip() for name in names.split(",")],
        exclude_modules=r".*(visual|vision_tower|vision_model|multi_modal_projector)\..*"
        if options.freeze_vision_tower and hasattr(network.config, "vision_config")
        else None,
    )
    try:
        inject_adapter_in_model(config, network)
    except ValueError as error:
        raise TrainingError(f"model.target_modules: {first_line(error)}") from error


def load_adapter(network: Any, folder: Path) -> None:
    """Load saved weights into a network's LoRA adapter. Raises `TrainingError` if names or shapes differ."""
    from safetensors.torch import load_file

    held = {name: value for name, value in network.named_parameters() if ".lora_" in name}
    try:
        saved = load_file(folder / ADAPTER_WEIGHTS)
    except OSError as error:
        raise TrainingError(f"{folder}: holds no LoRA adapter: {first_line(error)}") from error
    wanted = {_peft_name(name): tuple(value.shape) for name, value in held.items()}
    if wanted != {name: tuple(value.shape) for name, value in saved.items()}:
        raise TrainingError(f"{folder}: the adapter there is of other layers, or has another rank")
    with torch.no_grad():
        for name, value in held.items():
            value.copy_(saved[_peft_name(name)])


def save_adapter(network: Any, weights: dict[str, torch.Tensor], source: Path, folder: Path) -> None:
    """Write a network's LoRA adapter in PEFT's format. `source`: the folder of its base model."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    config = network.peft_config["default"]
    config.base_model_name_or_path = str(source)
    config.inference_mode = True
    config.save_pretrained(folder)
    adapter = {_peft_name(name): value.contiguous() for name, value in weights.items() if ".lora_" in name}
    save_file(adapter, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})


def _peft_name(name: str) -> str:
    """Return the name of an adapter's parameter in PEFT's files."""
    return f"base_model.model.{name.replace('.default.', '.')}"


def merge_adapter(weights: dict[str, torch.Tensor], options: RlModelSettings) -> dict[str, torch.Tensor]:
    """Return the weights under the base model's names, with the adapter merged: W + alpha / rank · B · A."""
    whole = {name.replace(".base_layer.", "."): value for name, value in weights.items() if ".lora_" not in name}
    for name, first in weights.items():
        if ".lora_A." in name:
            second = weights[name.replace(".lora_A.", ".lora_B.")]
            target = f"{name.split('.lora_A.')[0]}.weight"
            change = second.float() @ first.float() * (options.lora_alpha / options.lora_rank)
            whole[target] = (whole[target].float() + change).to(whole[target].dtype)
    return whole


# The attention implementation's name in transformers' registry.
BLOCKS = "webgym_blocks"


def register_blocks() -> None:
    """Register with transformers, which builds no mask for an attention without a mask function."""
    from transformers import AttentionInterface

    AttentionInterface.register(BLOCKS, attend_in_blocks)


def attend_in_blocks(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    cu_seq_lens_q: torch.Tensor | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return [1, L, H, D]: causal attention within each sequence of a packed row; otherwise as `sdpa`.

    `query` [1, H, L, D], `key` and `value` the same with fewer heads perhaps; `cu_seq_lens_q` [S + 1] holds the
    cumulative sequence lengths. Raises `TrainingError` for a sequence that is longer than a layer's window.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if cu_seq_lens_q is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0], None
    lengths: list[int] = cu_seq_lens_q.diff().tolist()
    if sliding_window is not None and max(lengths) > sliding_window:
        raise TrainingError(
            f"model.use_remove_padding: a layer sees {sliding_window} tokens, a sequence has {max(lengths)}: without "
            "flash attention set it to false"
        )
    parts = zip(*(part.split(lengths, dim=2) for part in (query, key, value)), strict=True)
    outputs = [sdpa_attention_forward(module, q, k, v, None, **options)[0] for q, k, v in parts]
    return torch.cat(outputs, dim=1), None
