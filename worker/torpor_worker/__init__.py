"""The worker: supervisor, rank processes, model runner, layers and models."""
