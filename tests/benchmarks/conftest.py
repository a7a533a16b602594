"""What the benchmarks of training share: a stand-in for the train role."""

import json
from pathlib import Path

import pytest

from benchmarks import rl_bench
from webgym_cli.errors import JobError


class Jobs:
    """Stands for the role: answers each job with figures, and keeps what was asked."""

    def __init__(self, gpu="", cosine=1.0):
        self.gpu, self.cosine, self.seconds, self.failing_rank = gpu, cosine, 2.0, None
        self.requests, self.configs, self.limits, self.pythons = [], [], [], []

    def __call__(self, module, job, python, *, limit=None, **environment):
        self.limits.append(limit)
        self.pythons.append((module, python))
        self.requests.append((module, job, environment))
        if job.get("what") == "models":
            return {"gpu": self.gpu, "memory": 141 * 10**9 if self.gpu else 0}
        figures = {"seconds": self.seconds, "peak_mb": 1024.0, "loaded_mb": 300.0, "held_mb": 512.0}
        figures["versions"] = {"torch": "2.11.0"}
        if module == "rl_trl":
            return {**figures, "seconds": 6.0, "gradients": [{"cosine": 1.0}, {"cosine": self.cosine}]}
        self.configs.append(json.loads(Path(job["config"]).read_text()))
        if self.configs[-1]["model"]["lora_rank"] == self.failing_rank:
            raise JobError("benchmarks.rl_job failed: out of memory")
        seconds = self.seconds if self.configs[-1]["model"]["use_remove_padding"] else 4.0
        return {**figures, "seconds": seconds, "old_log_prob": 1.0, "adv": 0.1, "attention": "sdpa"}


@pytest.fixture
def jobs(monkeypatch):
    def install(**given):
        result = Jobs(**given)
        monkeypatch.setattr(rl_bench, "program", result)
        monkeypatch.setattr(rl_bench, "_role_python", lambda: "python")
        monkeypatch.setattr(rl_bench, "_peer_python", lambda: "python of TRL")
        return result

    return install
