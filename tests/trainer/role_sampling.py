import torch

from webgym_cli.records.sampling import Sampling
from webgym_cli.trainer.model.logprobs import sampled_mask

LOGITS = torch.log(torch.tensor([[0.25, 0.5, 0.1, 0.15]]))


def left(**limits):
    return sampled_mask(LOGITS, Sampling(temperature=1, **limits))[0].int().tolist()


def test_each_limit_by_hand():
    assert left() == [1, 1, 1, 1]
    assert left(top_k=2) == [1, 1, 0, 0]
    assert left(top_k=-1) == [1, 1, 1, 1]
    assert left(top_p=0.7) == [1, 1, 0, 0]  # 0.5 is too little, 0.75 enough
    assert left(top_p=0.8) == [1, 1, 0, 1]
    assert left(top_p=0.01) == [0, 1, 0, 0]  # one is always left
    assert left(min_p=0.4) == [1, 1, 0, 0]  # 0.4 · 0.5 = 0.2
    # min-p leaves 0.5, 0.25, 0.15; top-k two of them, 2/3 and 1/3: the first reaches 0.6 alone
    assert left(min_p=0.25, top_k=2, top_p=0.6) == [0, 1, 0, 0]
    assert left(min_p=0.25, top_k=2, top_p=0.7) == [1, 1, 0, 0]
    # ties with the last stay
    assert sampled_mask(torch.zeros(1, 4), Sampling(temperature=1, top_k=2)).all()


def test_each_limit_agrees_with_transformers():
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = 3 * torch.randn(200, 50)
    pairs = [
        (Sampling(temperature=1, top_k=7), TopKLogitsWarper(7)),
        (Sampling(temperature=1, top_p=0.83), TopPLogitsWarper(0.83)),
        (Sampling(temperature=1, min_p=0.07), MinPLogitsWarper(0.07)),
    ]
    for limits, theirs in pairs:
        assert sampled_mask(logits, limits).equal(~theirs(None, logits).isneginf()), limits
