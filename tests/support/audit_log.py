"""The API server's audit log: who asked for what. Only a test on a cluster of its own has it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kube import Kube, wait_for

_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


_RIGHTS = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Entry:
    """One request. ``at``: when it came, as text that sorts. ``resource``: with the subresource,
    as in a rule. ``denied``: by RBAC, as opposed to a quota or an admission policy."""

    at: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    code: int
    denied: bool
    dry_run: bool

    @property
    def writes(self) -> bool:
        """A dry run goes the whole way of a write, and stores nothing."""
        return self.verb in _WRITES and not self.dry_run

    @property
    def looks(self) -> bool:
        """Shown as a write by the log, and is none."""
        return self.verb in _WRITES and self.dry_run

    def __str__(self) -> str:
        what = f"{self.verb} {self.resource} {self.namespace}/{self.name}"
        return f"{self.at} {what} -> {self.code}{' (dry run)' if self.dry_run else ''}"


class AuditLog:
    """``path``: the file in JSON lines that the API server appends to; rotated ones lie beside it
    under longer names. Empty where there is none."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None

    @property
    def named(self) -> bool:
        """One that is named and cannot be read is an error."""
        return self._path is not None

    def need(self) -> None:
        if not self.named:
            pytest.skip(
                "No audit log is named (TORPOR_E2E_AUDIT_LOG): who wrote what is not known."
            )

    def mark(self, kube: Kube) -> str:
        """A moment of the API server's clock that all earlier requests lie before, in the form of
        ``Entry.at``. Everything up to it is in the log. Empty without a log."""
        if not self.named:
            return ""
        word = uuid.uuid4().hex
        kube.kubectl("get", "--raw", f"/version?mark={word}")
        found: dict[str, Any] = wait_for(
            lambda: next(self._lines(word), None), 30, lambda: "the audit log shows no request"
        )
        return str(found["requestReceivedTimestamp"])

    def of(self, user: str, since: str, until: str = "~") -> list[Entry]:
        """What a user asked for between two marks, each request once."""
        found = {
            line["auditID"]: line
            for line in self._lines(f'"{user}"')
            if line["user"]["username"] == user
            and since <= line["requestReceivedTimestamp"] < until
            and "objectRef" in line
        }
        return sorted(map(_entry, found.values()), key=lambda entry: entry.at)

    def losses_of_rights(self, release: str) -> list[datetime]:
        """When a role or a binding of a release was removed, by anybody."""
        return [
            datetime.fromisoformat(line["requestReceivedTimestamp"])
            for line in self._lines(f'"apiGroup":"{_RIGHTS}"')
            if line["verb"].startswith("delete") and release in line["objectRef"].get("name", "")
        ]

    def _lines(self, word: str) -> Iterator[dict[str, Any]]:
        """The entries in whose text the word is."""
        assert self._path is not None
        rotated = self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}")
        for path in (*sorted(rotated), self._path):
            with path.open(encoding="utf-8") as file:
                for line in file:
                    # The last line may not be whole yet.
                    if word in line and line.endswith("\n"):
                        yield json.loads(line)


def _entry(line: dict[str, Any]) -> Entry:
    about = line["objectRef"]
    resource = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
    decision = line.get("annotations", {}).get("authorization.k8s.io/decision", "")
    return Entry(
        at=line["requestReceivedTimestamp"],
        verb=line["verb"],
        group=about.get("apiGroup", ""),
        resource=resource,
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        code=line.get("responseStatus", {}).get("code", 0),
        denied=decision == "forbid",
        dry_run="dryRun" in parse_qs(urlsplit(line["requestURI"]).query),
    )
