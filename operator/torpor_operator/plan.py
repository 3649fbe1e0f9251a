"""From what was seen to what is to be done: the operator's one decision, without any effect.

    view_replicas -> choose_roles -> pods, children, calls -> status and events

Given the same look and time it decides the same; carried out and looked at again it ends in doing
nothing.
"""

from __future__ import annotations

from typing import Final

from torpor_operator.children_plan import ChildrenPlan, plan_children
from torpor_operator.deployment import Deployment, read_deployment
from torpor_operator.model import Observed, Plan, child_key
from torpor_operator.pod_plan import PodPlan, plan_pods
from torpor_operator.progress import load_progress
from torpor_operator.replica_view import view_replicas
from torpor_operator.replicas import Roles, choose_roles, engine_calls, next_to_replace
from torpor_operator.settings import Settings
from torpor_operator.situation import Situation
from torpor_operator.status import refused_status, status_of
from torpor_operator.transitions import events_of
from torpor_protocol.errors import ConfigError

MOVING_SECONDS: Final = 1.0  # until the next look while something changes
SETTLED_SECONDS: Final = 10.0  # while nothing does: a request may wake an engine unseen


def plan(observed: Observed, settings: Settings, now: float) -> Plan:
    """``now`` in unix seconds."""
    if observed.resource["metadata"].get("deletionTimestamp"):
        return Plan(status=observed.previous)  # the garbage collector removes the children
    try:
        deployment = read_deployment(observed.resource)
    except ConfigError as error:
        return _refuse(observed, error, now)
    return _carry_on(deployment, observed, settings, now)


def _refuse(observed: Observed, error: ConfigError, now: float) -> Plan:
    """Pods of an earlier, valid spec go on as they are."""
    previous = observed.previous
    generation = observed.resource["metadata"].get("generation", 0)
    status = refused_status(previous, generation, str(error), now)
    after = SETTLED_SECONDS if observed.pods else None
    return Plan(status=status, requeue_after=after, events=events_of(previous, status))


def _carry_on(deployment: Deployment, observed: Observed, settings: Settings, now: float) -> Plan:
    replicas = view_replicas(deployment, observed)
    roles = choose_roles(deployment, replicas)
    replacing = next_to_replace(deployment, replicas, roles)
    pods = plan_pods(deployment, observed, replicas, roles, replacing, settings, now)
    children = plan_children(deployment, observed, replicas, roles, settings)
    deleted = {ref.name for ref in pods.delete}
    going = frozenset(
        index
        for index, replica in replicas.items()
        if replica.engine is not None and replica.engine.name in deleted
    )
    calls = engine_calls(deployment, replicas, roles, going)
    members = [replicas[index] for index in roles.members if index in replicas]
    situation = Situation(
        deployment=deployment,
        observed=observed,
        replicas=replicas,
        roles=roles,
        pods=pods,
        taken=children.taken,
        lacking=len(children.apply),
        load=load_progress(members, observed.previous.get("loadProgress")),
        now=now,
    )
    status = status_of(situation)
    acts = bool(pods.delete or calls) or _makes_something(observed, children, pods)
    return Plan(
        apply=children.apply,
        create=pods.create,
        delete=pods.delete,
        calls=tuple(calls),
        status=status,
        requeue_after=_next_look(situation, roles, acts),
        events=events_of(observed.previous, status),
    )


def _makes_something(observed: Observed, children: ChildrenPlan, pods: PodPlan) -> bool:
    """Apart from what the API server has refused, which is tried again after longer pauses."""
    made = (*children.apply, *pods.create)
    keys = {child_key(manifest["kind"], manifest["metadata"]["name"]) for manifest in made}
    return bool(keys - set(observed.refused))


def _next_look(situation: Situation, roles: Roles, acts: bool) -> float | None:
    """What only a user or a kubelet can change is heard of; the rest has to be looked at."""
    if not roles.members and not situation.observed.pods and not acts:
        return None
    stuck = all(replica.steady or replica.blocked for replica in situation.members)
    ending = any(pod.deleting for pod in situation.observed.pods)
    if acts or ending or not stuck:
        return MOVING_SECONDS
    return SETTLED_SECONDS
