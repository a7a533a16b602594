"""Four local web sites with tasks and experts, for trying web environments without a network."""
