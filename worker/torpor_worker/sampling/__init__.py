"""From logits to tokens. ``sampler`` holds the pipeline; each feature is one small class."""
