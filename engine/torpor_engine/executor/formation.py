"""The plan of a formation: which supervisor starts which ranks. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from torpor_protocol import rpc
from torpor_protocol.config import EngineConfig, RankAssignment
from torpor_protocol.errors import GroupLost
from torpor_protocol.transport import CurveKeys


class Member(NamedTuple):
    """A supervisor and what it is asked to start."""

    supervisor: bytes
    form: rpc.Form


def plan_formation(
    config: EngineConfig,
    hellos: dict[bytes, rpc.Hello],
    group: str,
    store: str,
    interface: str,
    server: CurveKeys | None,
) -> list[Member]:
    """Fill the supervisors in the order of their pods, tensor-parallel neighbours together.

    Raises GroupLost(WorldSize) when their devices do not suffice."""
    world = config.parallel.world_size
    members: list[Member] = []
    rank = 0
    for peer, hello in in_order(hellos):
        local_size = min(hello.devices, world - rank)
        if local_size <= 0:
            break
        assignments = [
            RankAssignment(rank + local, local, local_size, group, store, interface)
            for local in range(local_size)
        ]
        keys = [_rank_keys(server) for _ in assignments]
        members.append(Member(peer, rpc.Form(config, assignments, keys)))
        rank += local_size
    if rank < world:
        raise GroupLost("WorldSize", f"There are devices for {rank} ranks of {world}.")
    return members


def in_order(hellos: dict[bytes, rpc.Hello]) -> list[tuple[bytes, rpc.Hello]]:
    """By the numbers in the names of the pods: worker-10 comes after worker-2."""
    return sorted(hellos.items(), key=lambda item: (_natural(item[1].pod_name), item[0]))


def _natural(name: str) -> list[tuple[str, int]]:
    """Pieces of a name, each the text before a number and the number."""
    pieces = re.findall(r"(\D*)(\d*)", name)
    return [(text, int(digits or "-1")) for text, digits in pieces]


def _rank_keys(server: CurveKeys | None) -> rpc.RankKeys:
    if server is None:
        return rpc.RankKeys()
    own = CurveKeys.generate()
    return rpc.RankKeys(public=own.public, secret=own.secret, server=server.public)
