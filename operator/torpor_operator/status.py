"""``status`` of a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from torpor_operator import names
from torpor_operator.conditions import VERDICTS, Verdict
from torpor_operator.model import Manifest, by_type, child_key
from torpor_operator.progressing import progressing
from torpor_operator.replica_view import Replica
from torpor_operator.situation import Situation
from torpor_operator.times import condition
from torpor_operator.words import fit
from torpor_protocol.api import ConditionType
from torpor_protocol.api.names import MAX_ITEMS

_TYPES: Final[tuple[str, ...]] = get_args(ConditionType)


def status_of(situation: Situation) -> Manifest:
    """The whole status, as the custom resource has it."""
    deployment, members = situation.deployment, situation.members
    verdicts = {kind: verdict(situation) for kind, verdict in VERDICTS.items()}
    verdicts["SpecValid"] = Verdict(True, "Valid", "The spec is valid.")
    verdicts["Progressing"] = progressing(situation)
    revision = deployment.revision
    present = [replica for replica in members if replica.pods]
    updated = [replica for replica in present if not replica.stale(revision)]
    selected = names.deployment_selector(deployment.name, names.ENGINE)
    status: Manifest = {
        "observedGeneration": deployment.generation,
        "conditions": _conditions(
            verdicts, situation.previous, deployment.generation, situation.now
        ),
        "replicas": sum(replica.awake for replica in members),
        "readyReplicas": len(situation.serving),
        "updatedReplicas": len(updated),
        "sleepingReplicas": sum(replica.state == "Asleep" for replica in members),
        "desiredReplicas": deployment.wanted,
        "selector": names.selector_text(selected),
        "url": _url(situation),
        "modelName": deployment.spec.model.names[0],
        "currentRevision": _current_revision(situation, updated),
        "updateRevision": revision,
        "replicaStatuses": _replica_statuses(situation),
    }
    return status | ({"loadProgress": situation.load} if situation.load else {})


def refused_status(previous: Manifest, generation: int, message: str, now: float) -> Manifest:
    """For a spec that cannot be carried out: what is there stays, and both conditions say why."""
    verdict = Verdict(False, "InvalidSpec", fit(message))
    verdicts = {
        "Ready": verdict,
        "SpecValid": verdict,
        "Progressing": Verdict(False, "InvalidSpec", "Nothing is done until the spec is valid."),
    }
    conditions = _conditions(verdicts, previous, generation, now)
    kept = {"replicas": 0, "readyReplicas": 0} | previous
    return kept | {"observedGeneration": generation, "conditions": conditions}


def _conditions(
    verdicts: Mapping[str, Verdict], previous: Manifest, generation: int, now: float
) -> list[Manifest]:
    """In the order of the design; a type without a verdict stays as it was."""
    before = by_type(previous)
    made = []
    for kind in _TYPES:
        if kind in verdicts:
            verdict = verdicts[kind]
            status = "True" if verdict.holds else "False"
            made.append(condition(kind, status, verdict, before.get(kind), generation, now))
        elif kind in before:
            made.append(dict(before[kind]))
    return made


def _url(situation: Situation) -> str:
    deployment = situation.deployment
    name = names.client_service(deployment.name)
    key = child_key("Service", name)
    there = any(
        child.owned and child_key(child.kind, child.name) == key
        for child in situation.observed.children
    )
    return names.client_url(deployment.name, deployment.namespace) if there else ""


def _current_revision(situation: Situation, updated: list[Replica]) -> str:
    """The update revision once every member is of it and one has loaded; else what was."""
    everyone = len(updated) == len(situation.members)
    if everyone and any(replica.loaded for replica in updated):
        return situation.deployment.revision
    return str(situation.previous.get("currentRevision") or "")


def _replica_statuses(situation: Situation) -> list[Manifest]:
    before = {each["index"]: each for each in situation.previous.get("replicaStatuses") or []}
    shown = {**situation.replicas, **{each.index: each for each in situation.members}}
    ordered = [shown[index] for index in sorted(shown)][:MAX_ITEMS]
    revision = situation.deployment.revision
    return [_entry(replica, before.get(replica.index, {}), revision) for replica in ordered]


def _entry(replica: Replica, before: Mapping[str, Any], revision: str) -> Manifest:
    restarts = replica.told.get("restarts", before.get("restarts", 0))
    entry: Manifest = {
        "index": replica.index,
        "revision": replica.pods[0].revision if replica.pods else revision,
        "state": replica.state,
        "restarts": restarts,
        "groupId": replica.told.get("group", before.get("groupId", "") if replica.loaded else ""),
        "message": replica.message,
    }
    return entry | ({"reason": replica.reason} if replica.reason else {})
