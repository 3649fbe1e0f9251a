"""Environment variables of engine and worker pods.

A variable can make a loader or an interpreter run foreign code, so some prefixes are not free.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.forms import Form, ObjectName, SecretKey
from torpor_protocol.api.names import MAX_TEXT
from torpor_protocol.api.rules import Rule

_RESERVED = ("LD_", "PYTHON", "NVIDIA_", "TORPOR_")
EnvName = Annotated[
    str,
    Form("a variable name of letters, digits and underscores", "^[A-Za-z_][A-Za-z0-9_]*$", 128),
]
EnvValue = Annotated[str, Form("a text", "", MAX_TEXT, shortest=0)]


class KeyRef(ApiModel):
    name: ObjectName = setting(
        "Name of the object, in the same namespace.", unit="name", example="settings"
    )
    key: SecretKey = setting("Key inside the object.", unit="name", example="level")


class EnvSource(ApiModel):
    secret_key_ref: KeyRef | None = setting(
        "Key of a Secret.",
        unit="reference",
        default=None,
        shown="absent",
        example={"name": "proxy", "key": "password"},
    )
    config_map_key_ref: KeyRef | None = setting(
        "Key of a ConfigMap.",
        unit="reference",
        default=None,
        shown="absent",
        example={"name": "settings", "key": "level"},
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "secretKeyRef",
            "has(self.secretKeyRef) != has(self.configMapKeyRef)",
            "and configMapKeyRef must not both be set or both be absent",
            "Set exactly one of them.",
            lambda source: (source.secret_key_ref is None) != (source.config_map_key_ref is None),
        ),
    )


class EnvVar(ApiModel):
    name: EnvName = setting(
        "Name of the variable; LD_*, PYTHON*, NVIDIA_* and TORPOR_* are not free.",
        unit="name",
        example="NCCL_DEBUG",
    )
    value: EnvValue | None = setting(
        "Value, taken as it is.", unit="text", default=None, shown="an empty text", example="INFO"
    )
    value_from: EnvSource | None = setting(
        "Where the value is read from instead.",
        unit="reference",
        default=None,
        shown="absent",
        example={"configMapKeyRef": {"name": "settings", "key": "level"}},
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "name",
            f"!self.name.matches(r'^({'|'.join(_RESERVED)})')",
            "must not begin with LD_, PYTHON, NVIDIA_ or TORPOR_",
            "Such variables load code or belong to Torpor; remove it.",
            lambda variable: not variable.name.startswith(_RESERVED),
        ),
        Rule(
            "value",
            "!has(self.value) || !has(self.valueFrom)",
            "must be absent where valueFrom is set",
            "Keep one of the two.",
            lambda variable: variable.value is None or variable.value_from is None,
        ),
    )
