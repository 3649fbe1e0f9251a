"""Which layers a pipeline stage holds. Pure."""

from __future__ import annotations

from torpor_protocol.errors import ConfigError


def stage_layers(num_layers: int, pp_size: int, pp_rank: int) -> range:
    """Global indices of a stage's layers.

    Equal shares; what remains goes one layer each to the stages before the last, walking back,
    because the last one also has the head and the first one the embedding.
    Raises ConfigError when a stage would be empty.
    """
    share, rest = divmod(num_layers, pp_size)
    if share == 0:
        raise ConfigError(
            f"{num_layers} layers cannot be split over {pp_size} pipeline stages.",
            f"Choose pipeline parallelism of at most {num_layers}.",
        )
    sizes = [share] * pp_size
    for stage in range(pp_size - 1 - rest, pp_size - 1):
        sizes[stage] += 1
    start = sum(sizes[:pp_rank])
    return range(start, start + sizes[pp_rank])
