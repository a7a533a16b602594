"""Settings of what learns from data: server, dataset, trainer, loop. The text under a field is its help."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.task import DifficultyBand


class ServeSettings(ConfigSection):
    """The vLLM server."""

    host: str = "127.0.0.1"
    """Address to listen on. In-place weight swaps use vLLM's developer endpoints: keep it on loopback."""
    port: int = Field(default=8999, ge=0, le=65535)
    """Port; 0 takes a free one. Further replicas take the ports after it."""
    served_model_name: str = "policy"
    """The model's name in requests."""
    max_model_len: int = Field(default=32768, ge=64)
    """Longest prompt and response together, in tokens."""
    max_num_seqs: int = Field(default=512, ge=1)
    """Requests in one batch."""
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    """Tokens that vLLM computes in one step at most; null: its own choice (on a CPU the longest prompt)."""
    prefix_caching: bool = True
    """Keep what was computed for a prompt's beginning: the prompts of an episode share most of it."""
    mm_processor_cache_gb: float = Field(default=4.0, ge=0)
    """Memory for prepared images in GiB, in vLLM's front end and again in each engine: a screenshot is prepared once
    and sent in several prompts. 10 to 25 MB for 1280 x 768 pixels; 0: none."""
    enforce_eager: bool = False
    """Start without CUDA graphs: sooner up and with less memory, but slower. On a CPU always."""
    gpu_memory_utilization: float = Field(default=0.95, gt=0, le=1)
    """Share of GPU memory that vLLM takes (CUDA only)."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs that share one copy of the model."""
    data_parallel_size: int = Field(default=1, ge=1)
    """Copies of the model behind one server, each on `tensor_parallel_size` GPUs of its own. vLLM spreads requests over
    them without regard to which one has an episode's prompt cached: prefer `replicas`."""
    replicas: int | None = Field(default=None, ge=1)
    """Servers of our own on this machine, each with GPUs of its own; an episode's requests stay with one of them. null:
    as many as the GPUs carry, one on a CPU."""
    restarts: int = Field(default=2, ge=0)
    """How often a replica that dies in a rollout is started again, while the others go on; then it is left out."""
    during_training: Literal["auto", "sleep", "stop", "keep"] = "auto"
    """What the server does while a training needs the GPUs. `sleep`: it gives its memory back and keeps its process;
    `stop`: it ends; `keep`: it stays, where the trainer has GPUs of its own. `auto`: `sleep` on GPUs, where new weights
    can be loaded in place, else `stop`; `keep` on a CPU."""
    sleep_level: Literal[1, 2] = 2
    """2: a sleeping server drops the weights; 1: it keeps them in this machine's memory, once for each replica."""
    sleep_timeout: float = Field(default=120.0, gt=0)
    """Deadline for falling asleep, and for each step of waking up, in seconds; then it is stopped and started anew."""
    sleep_memory_gb: float = Field(default=10.0, gt=0)
    """GPU memory, in GiB on each GPU, that a sleeping server may still hold; above that it is stopped."""
    reasoning_parser: str = "auto"
    """vLLM's parser that tells a thought from the answer, for other clients: rollouts put both together again. `auto`:
    that of the model's family if it thinks; `none`: the response comes whole."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Precision of the weights; on CPUs without bf16 units float32 is the usable one."""
    startup_timeout: float = Field(default=600.0, gt=0)
    """Deadline until the server is healthy, in seconds."""
    stop_grace: float = Field(default=15.0, gt=0)
    """Seconds between TERM and KILL."""
    cpu_kvcache_gb: int = Field(default=1, ge=1)
    """Memory of the key-value cache in GiB (CPU only)."""
    extra_args: tuple[str, ...] = ()
    """More arguments for vLLM's server, as they stand."""


class LogSettings(ConfigSection):
    """Weights & Biases."""

    run_name: str = "webgym-"
    """Name of the run there."""
    wandb_key_env_var: str = "WANDB_API_KEY"
    """Name of the environment variable that holds the key; the key itself never stands in settings."""
    entity_name: str = ""
    """User or team that the run belongs to; empty: the default of the account."""
    project_name: str = "rl"
    """Project that the run belongs to."""
    run_id: str = Field(default="", pattern=r"^[^/\\#?%:]{0,128}$")
    """Id of the run there, to continue one; empty: an id of its own, the same for every command on the run."""
    tracking: Literal["auto", "online", "offline", "disabled"] = "auto"
    """How Weights & Biases gets what `metrics.jsonl` has. `auto`: online with a key, else offline, as files to be sent
    later. The stricter of this and `WANDB_MODE` in the environment counts; `disabled` holds for the trainer, too."""
    sample_trajectories: int = Field(default=8, ge=0, le=100)
    """Trajectories of each iteration and evaluation in its table there, with up to three screenshots each."""
    wait_seconds: float = Field(default=60.0, gt=0)
    """Longest that a command waits for Weights & Biases, before a training and at its end; the rest is sent later."""


class AlgorithmSettings(ConfigSection):
    """The dataset and its training, under the names of WebGym's `update_online.yaml`."""

    model_output_name: str = "model.pt"
    """Name of the current policy in the run directory."""
    last_n_iterations: int = Field(default=4, ge=1)
    """How many of the newest iterations are read."""
    filter_successful_only: bool = True
    """Train on successful trajectories only."""
    filter_same_screenshot: bool = True
    """Drop steps after which the screen looked the same."""
    filter_retokenized: bool = True
    """Drop responses whose text has other token ids than were sampled: training would see what was never served."""
    min_trajectory_steps: int = Field(default=2, ge=1)
    """Trajectories with fewer steps are dropped."""
    positive_samples_to_train: int | None = Field(default=1800, ge=1)
    """Steps in the dataset; null: all that are eligible."""
    weighting: Literal["iteration", "position"] = "iteration"
    """What the recency bias counts. `iteration`: each iteration has a share, and within it every step is alike;
    `position`: each step has a weight of its own by its place in time, as WebGym draws."""
    recency_bias_power: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """A share or weight is proportional to (i+1)^power, i counting from the oldest iteration that was read, or from
    the oldest eligible step; 0: no bias."""
    val_split_ratio: float = Field(default=0.05, ge=0, lt=1)
    """Share of the trajectories held out into `finetune_val.json`."""
    seed: int | None = None
    """Seed of the draw; null: the run's seed."""
    finetuning_type: Literal["full", "lora"] = "full"
    """What is trained: the model's own weights, or a low-rank adapter that is merged into them after each training."""
    lora_rank: int = Field(default=8, ge=1)
    """Rank of the adapter's matrices (LoRA only, as are the other `lora_` settings)."""
    lora_alpha: int | None = Field(default=None, ge=1)
    """Scale of the adapter: it counts lora_alpha / lora_rank times; null: twice the rank."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the adapter's inputs that are dropped in training."""
    lora_target: str = "all"
    """Modules that get an adapter, by parts of their names with commas between (`q_proj,v_proj`); `all`: every linear
    one that is not frozen, the output layer left out."""
    freeze_vision_tower: bool = True
    """Leave the vision tower as it is, with and without LoRA."""
    freeze_multi_modal_projector: bool = True
    """Leave the projector between vision tower and language model as it is."""
    freeze_language_model: bool = False
    """Leave the language model as it is; needs a vision tower or projector that is not frozen."""
    cutoff_len: int = Field(default=16384, ge=16)
    """Longest training sample in tokens, images counted."""
    per_device_train_batch_size: int = Field(default=3, ge=1)
    """Samples that a process takes at once."""
    per_device_eval_batch_size: int = Field(default=3, ge=1)
    """The same for the evaluation during training."""
    gradient_accumulation_steps: int = Field(default=4, ge=1)
    """Passes whose gradients make one optimizer step: the batch is this times the processes times their samples."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """Learning rate after the warm-up."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients with a larger norm are scaled down to it."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's decoupled weight decay."""
    num_train_epochs: float = Field(default=2, gt=0)
    """Passes over the dataset in one training."""
    warmup_steps: int = Field(default=30, ge=0)
    """Warm-up of a fresh optimizer; a training that keeps its optimizer's moments has none."""
    lr_scheduler_type: str = "constant_with_warmup"
    """Course of the learning rate: a name that transformers knows (`constant_with_warmup`, `cosine`, `linear`, ...)."""
    logging_steps: int = Field(default=1, ge=1)
    """Optimizer steps between two reports of the loss."""
    bf16: bool = True
    """Train in bfloat16; refused on a CPU, where it would be some hundred times slower."""
    do_eval: bool = False
    """Evaluate on the held-out trajectories during training."""
    eval_strategy: Literal["no", "steps", "epoch"] = "epoch"
    """When `do_eval` evaluates."""
    save_strategy: Literal["steps", "epoch"] = "steps"
    """When a training writes checkpoints: every `save_steps`, or after each epoch."""
    save_steps: int = Field(default=999999, ge=1)
    """Steps between checkpoints within a training; the last one is always written."""
    save_total_limit: int = Field(default=1, ge=1)
    """Checkpoints that a training keeps while it runs, the newest."""
    save_only_model: bool = False
    """Leave out the optimizer's states; the next training then starts with a fresh optimizer."""
    preprocessing_num_workers: int = Field(default=16, ge=1)
    """Processes that tokenize the dataset; no more than there are cores and samples."""
    dataloader_num_workers: int = Field(default=2, ge=0)
    """Processes that load batches, for each training process."""
    dataloader_pin_memory: bool = True
    """Load batches into pinned memory (CUDA only)."""
    remove_unused_columns: bool = False
    """Drop columns that the model does not name; keep it off, images are among them."""
    min_token_length: int = Field(default=10, ge=0)
    """Samples whose response is shorter, in tokens, are dropped."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, more time."""
    plot_loss: bool = False
    """Have LLaMA-Factory draw the loss into the checkpoint's folder."""
    deepspeed_config_filename: str | None = "ds_config_b200_zero1.json"
    """A shipped DeepSpeed configuration or a path; null: no DeepSpeed."""
    report_to: Literal["wandb", "none"] = "wandb"
    """Where the trainer reports; without a key Weights & Biases logs offline."""


class FilterSettings(ConfigSection):
    """What `prepare` leaves out beside what WebGym does: as it comes, nothing. Each filter tells what it dropped."""

    only_sites: tuple[str, ...] = ()
    """Only tasks of these sites: registrable domains (`example.com`), or an environment's name where tasks have no
    address (`miniwob`). Empty: every site."""
    exclude_sites: tuple[str, ...] = ()
    """No task of these sites."""
    difficulties: tuple[DifficultyBand, ...] = ()
    """Only tasks of these difficulty bands: `easy`, `medium`, `hard`. Empty: every band."""
    max_age_hours: float | None = Field(default=None, gt=0)
    """Oldest trajectories, in hours before the newest of the training split started: the same whenever it is run.
    null: any age."""
    min_agreement: float = Field(default=0.0, ge=0, le=1)
    """Smallest share of the judge's votes that must have gone with its decision, on the question that divided it most.
    Trajectories that their environment scored have no votes and pass."""
    drop_older_repeats: bool = False
    """Drop a step when a newer iteration has one of the same task with the same screenshot and response."""
    max_steps_per_trajectory: int | None = Field(default=None, ge=1)
    """Steps that are eligible of one trajectory, chosen by the seed; null: all."""
    max_steps_per_task: int | None = Field(default=None, ge=1)
    """Steps that are eligible of one task, over all that is read, chosen by the seed; null: all."""
    near_duplicate_bits: int | None = Field(default=None, ge=0, le=256)
    """Drop a step when one of the same task was drawn whose screenshot's difference hash (256 bits) differs in at most
    so many bits. About 10 is the same page with other words in a corner; null: not compared. Decodes each drawn
    step's screenshot."""


class TrainSettings(ConfigSection):
    """How the trainer is run."""

    algorithm: str = "sft"
    """How a policy learns. `sft`: it imitates chosen episodes, with LLaMA-Factory (`algorithm_config`). The others:
    policy gradients on all episodes of an iteration (`rl`), by the advantage estimator that is named: `grpo`, `rloo`,
    `reinforce_plus_plus`, `remax`, `gae`; `webrl`: WebRL's critic and actor (`rl.webrl`); or a training backend or
    estimator of yours (`plugins`). Iterations of demonstrations have `loop.demonstration_algorithm`."""
    nproc_per_node: int | None = Field(default=None, ge=1)
    """Processes on this machine; null: one for each GPU that `CUDA_VISIBLE_DEVICES` leaves, one on CPU."""
    keep_optimizer_state: bool = True
    """Carry Adam's moments from one iteration's training into the next."""
    time_limit_minutes: float = Field(default=1440.0, gt=0)
    """Deadline of one training."""
    stop_grace: float = Field(default=30.0, gt=0)
    """Seconds between TERM and KILL."""
    executor: Literal["local", "ray"] = "local"
    """`local`: on this machine, or on as many as `NNODES` says, each running the same command; `ray`: on this machine
    and on others of the Ray cluster (`rollout.ray_address`)."""
    nodes: int = Field(default=1, ge=1)
    """Nodes that train together with `executor: ray`, this one included."""
    node_storage: Literal["auto", "separate"] = "auto"
    """`auto`: a node that Ray placed works in the run's folder where it sees it, else it is sent what it needs;
    `separate`: it is sent what it needs in any case."""
    node_timeout: float = Field(default=120.0, ge=1)
    """Seconds of silence after which a node of a training over several nodes counts as dead. It is also how long the
    nodes wait for each other at the beginning."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Newest checkpoints that keep their optimizer's states; older ones keep only the weights."""
    keep_weights: int | None = Field(default=None, ge=1)
    """Newest checkpoints that keep their weights; older ones keep only their records. null: all. Weights that a server
    on this machine was started with stay until the training after its end."""
    check_disk_space: bool = True
    """Refuse a training that needs more disk space than is free: its weights, optimizer states and their copies."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """More LLaMA-Factory settings, written into `train_config.yaml` as they stand."""


class VenvsSettings(ConfigSection):
    """The Python environments of vLLM and LLaMA-Factory (`webgym setup`)."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Flavour of the environments; `auto`: cuda where an NVIDIA driver answers."""
    serve: str = ""
    """A Python interpreter, or the folder of an environment, that has vLLM; empty: the one that `webgym setup` made."""
    train: str = ""
    """The same for LLaMA-Factory."""


class LoopSettings(ConfigSection):
    """The order of things in `webgym loop`."""

    iterations: int = Field(default=3, ge=1)
    """Iterations that the run shall have in all."""
    demonstration_iterations: int = Field(default=0, ge=0)
    """So many first iterations collect the expert's demonstrations (the SFT baseline) in place of the policy's own, or
    take those that were imported there (`webgym import`)."""
    demonstration_algorithm: str = "sft"
    """How such an iteration is trained on, as `train.algorithm`: by a backend that imitates steps."""
    demonstration_episodes: int | None = Field(default=None, ge=1)
    """Episodes of such an iteration; null: as many as of any other (rollout.episodes)."""
    eval_every: int = Field(default=1, ge=0)
    """Evaluate every so many policy versions on the test split, from the base model (version 0) on, and the last one;
    1: each version, 0: none."""
