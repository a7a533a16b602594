"""The imitation dataset: filters, recency-biased sampling, ShareGPT."""
