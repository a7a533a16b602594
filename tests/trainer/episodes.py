"""Episodes as `prepare` writes them for WebRL, and what transformers and plain sums make of them."""

import torch
from tiny import OPTIM, V, text_model, write_batch

PLAIN = {"optim": OPTIM, "grad_clip": 1e9}
REWARDS = [1.0, 0.0, 1.0, None, 0.5]
"""A success, a failure, a replayed success, an episode that failed, half a success: that is none."""
LENGTHS = [3, 2, 2, 1, 1]


def tokens(chance, count):
    return torch.randint(V, (count,), generator=chance).tolist()


def steps(seed=5):
    """Return the rows of five episodes. The replayed one has only its second step."""
    chance = torch.Generator().manual_seed(seed)
    rows = []
    for number, length in enumerate(LENGTHS):
        prompts = [tokens(chance, 3 + (number + step) % 4) for step in range(length + 1)]
        for step in range(length):
            if number == 2 and step == 0:
                continue
            action = tokens(chance, 1 + (2 * number + step) % 3)
            ids = prompts[step] + action
            fields = {"next_prompt": prompts[step + 1], "last": step == length - 1, "replayed": number == 2}
            mask = [0] * len(prompts[step]) + [1] * len(action)
            rows.append({"input_ids": ids, "mask": mask, "number": number, "step": step, **fields})
    return rows


def phase(place, rows=None):
    """Write a model and a batch of episodes; return their folders."""
    model = text_model(place / "model")
    groups = list(range(len(REWARDS)))
    return model, write_batch(place / "data", rows or steps(), rewards=REWARDS, groups=groups, model=model)


def webrl(**sections):
    """Return settings of a training of WebRL."""
    usual = {name: {**PLAIN, **sections.get(name, {})} for name in ("actor", "critic")}
    return {"webrl": {}, **sections, **usual}


def learned_rows():
    """Return the rows that are learned from, and whether each is of a success."""
    rows = [row for row in steps() if REWARDS[row["number"]] is not None]
    return rows, torch.tensor([REWARDS[row["number"]] == 1 for row in rows])


def prompt(row):
    return row["input_ids"][: row["mask"].index(1)]


def plain_critic(folder, heads=2):
    """Return a critic's transformer and heads, as they lie in its folder."""
    from safetensors.torch import load_file
    from transformers import AutoModel

    body = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    file = load_file(folder / "outcome_heads.safetensors")
    result = []
    for number in range(heads):
        layers = [torch.nn.Linear(*reversed(file[f"{number}.{at}.weight"].shape)) for at in (0, 2, 4)]
        head = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
        own = {name.removeprefix(f"{number}."): value for name, value in file.items() if name[0] == str(number)}
        head.load_state_dict(own)
        result.append(head)
    return body, torch.nn.ModuleList(result)


def plain_logits(body, heads, prompts):
    """Return [heads, n, 2]: by transformers, padded on the left, from the state at the very end."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts])
    kept = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
    places = (kept.cumsum(1) - 1).clamp(min=0)
    states = body(input_ids=ids, attention_mask=kept, position_ids=places).last_hidden_state[:, -1]
    return torch.stack([head(states) for head in heads])


def plain_values(critic, prompts):
    with torch.no_grad():
        return plain_logits(*critic, prompts).softmax(-1)[..., 1].min(0).values


def plain_sums(network, rows):
    """Return [n]: the summed log-probs of the actions, with gradients."""
    sums = []
    for row in rows:
        ids = torch.tensor(row["input_ids"])
        logs = network(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
        sums.append(logs[torch.tensor(row["mask"][1:], dtype=torch.bool)].sum())
    return torch.stack(sums)


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=OPTIM["lr"], eps=OPTIM["eps"], weight_decay=OPTIM["weight_decay"])
