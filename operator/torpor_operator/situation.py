"""What one look has found and decided: the ground on which conditions and status are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torpor_operator.deployment import Deployment
from torpor_operator.model import Manifest, Observed
from torpor_operator.pod_plan import PodPlan
from torpor_operator.replica_view import Replica
from torpor_operator.replicas import Roles


@dataclass(frozen=True)
class Situation:
    """``taken``: "Kind/name" of wanted children of somebody else. ``lacking``: how many Services,
    policies and so on are being applied. ``load``: ``loadProgress``."""

    deployment: Deployment
    observed: Observed
    replicas: Mapping[int, Replica]
    roles: Roles
    pods: PodPlan
    taken: tuple[str, ...]
    lacking: int
    load: Manifest | None
    now: float

    @property
    def previous(self) -> Manifest:
        """The status as it was."""
        return self.observed.previous

    @property
    def members(self) -> list[Replica]:
        """Wanted replicas, those that do not exist yet among them."""
        return [self._replica(index) for index in self.roles.members]

    @property
    def wanted_awake(self) -> list[Replica]:
        return [self._replica(index) for index in self.roles.awake]

    @property
    def on_call(self) -> Replica | None:
        return None if self.roles.on_call is None else self._replica(self.roles.on_call)

    @property
    def serving(self) -> list[Replica]:
        """Awake members that are in the client Service."""
        return [each for each in self.members if each.state == "Awake" and each.ready]

    @property
    def answers(self) -> bool:
        """Whether as much takes requests as is wanted: with none wanted, one on call is enough."""
        if self.deployment.wanted:
            return len(self.serving) >= self.deployment.wanted
        return bool(self.serving) or self.sleeps_on_call

    @property
    def sleeps_on_call(self) -> bool:
        replica = self.on_call
        return replica is not None and replica.state == "Asleep" and replica.ready

    @property
    def settled(self) -> bool:
        """Whether everything is as it is wanted."""
        return (
            all(replica.state == "Awake" for replica in self.wanted_awake)
            and all(replica.steady for replica in self.members)
            and not any(replica.stale(self.deployment.revision) for replica in self.members)
            and not self.roles.surplus
            and not (self.taken or self.lacking or self.pods.missing or self.pods.delete)
        )

    def worst(self, among: list[Replica]) -> Replica | None:
        """The one whose story is to be told: what is blocked first, then what broke, then the
        furthest behind."""
        unwell = [replica for replica in among if not replica.steady]
        order = sorted(unwell, key=lambda each: (not each.blocked, not each.faulty, each.index))
        return order[0] if order else None

    def _replica(self, index: int) -> Replica:
        absent = Replica(index, message=f"Replica {index} is being created.")
        return self.replicas.get(index, absent)
