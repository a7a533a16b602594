"""In the serve role's interpreter: what vLLM samples from. Its argument is the folder of `webgym_cli`."""

import sys

import torch
from vllm.v1.sample.logits_processor.builtin import MinPLogitsProcessor
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch


def by_vllm(logits, top_k=None, top_p=None, min_p=None):
    """Its own steps in its own order: min-p, then top-k and top-p."""
    count = len(logits)
    logits = logits.clone()
    if min_p is not None:
        processor = object.__new__(MinPLogitsProcessor)
        processor.min_p_count, processor.min_p = count, torch.full((count, 1), min_p)
        logits = processor.apply(logits)
    k = None if top_k is None else torch.full((count,), top_k)
    p = None if top_p is None else torch.full((count,), top_p)
    return ~apply_top_k_top_p_pytorch(logits, k, p).isneginf()


def main():
    sys.path.append(sys.argv[1])
    from webgym_cli.records.sampling import Sampling
    from webgym_cli.trainer.model.logprobs import sampled_mask

    torch.manual_seed(0)
    logits = 3 * torch.randn(500, 200)
    both = ({"top_k": 20, "top_p": 0.9}, {"top_k": 12, "top_p": 0.6, "min_p": 0.02})
    for limits in ({"top_k": 7}, {"top_p": 0.83}, {"min_p": 0.05}, *both):
        assert sampled_mask(logits, Sampling(temperature=1, **limits)).equal(by_vllm(logits, **limits)), limits
    sys.stdout.write("sampled alike\n")


if __name__ == "__main__":
    main()
