"""Names of the files of a training, and of a model's parts, that the trainer writes and webgym reads."""

# The log of a training, a line an optimizer step.
TRAINER_LOG = "trainer_log.jsonl"
# Written last into a checkpoint: its presence means that the checkpoint is complete.
TRAINER_STATE = "trainer_state.json"
# The folder in a checkpoint with the exact weights and Adam moments of our own trainer.
RL_STATE = "rl_state"
# The folder in a checkpoint with the unmerged LoRA adapter in PEFT's format, and its weights file.
ADAPTER = "adapter"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# Name fragments of the vision tower's parameters.
VISION = ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.")
