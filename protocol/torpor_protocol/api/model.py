"""``spec.model``: which model is served, under which names and in which precision."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from torpor_protocol.api.base import ApiModel, setting
from torpor_protocol.api.forms import Digest, Form, ObjectName, SecretKey, Unique
from torpor_protocol.api.names import MAX_MODEL_LEN
from torpor_protocol.api.rules import Rule, refusal
from torpor_protocol.api.source import SOURCE_RULES, ModelSource, parse_source

SourceUri = Annotated[
    str, Form("a URI without spaces at its ends", r"^[^\s].*[^\s]$", 1024, shortest=3)
]
Revision = Annotated[
    str,
    Form("the name of a branch or tag, or a commit", r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", 128),
]
ServedName = Annotated[
    str,
    Form(
        "a name of letters, digits and . _ : / @ + - that starts with a letter or digit",
        r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$",
        256,
    ),
]


@dataclass(frozen=True)
class LengthOrAuto:
    """A number of tokens, or ``auto``; int-or-string in the schema."""

    most: int

    def check(self, value: object) -> int | str:
        if value == "auto":
            return "auto"
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= self.most:
            return value
        raise refusal(f"must be auto or a whole number from 1 to {self.most}")

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = f"self >= 1 && self <= {self.most}"
        rule = {
            "rule": f"type(self) == int ? {whole} : self == 'auto'",
            "message": f"must be auto or a whole number from 1 to {self.most}",
        }
        return {"x-kubernetes-int-or-string": True, "x-kubernetes-validations": [rule]}


ModelLength = Annotated[int | Literal["auto"], LengthOrAuto(MAX_MODEL_LEN)]


class SecretKeyRef(ApiModel):
    """A key of a Secret of the deployment's own namespace; another one cannot be named."""

    name: ObjectName = setting(
        "Name of the Secret, in the same namespace.", unit="name", example="hub-token"
    )
    key: SecretKey = setting(
        "Key inside the Secret.", unit="name", default="token", example="token"
    )


class ModelSpec(ApiModel):
    source: SourceUri = setting(
        "Where the model lies: pvc://claim/path, oci://image (mounted as a volume) or file:///path "
        "(taken as it is written, nothing is decoded). hf://organisation/name and "
        "s3://bucket/path are not supported by this version. "
        "The folder holds config.json, the tokenizer and safetensors files.",
        unit="URI",
        example="file:///models/smollm2-135m-instruct",
    )
    revision: Revision | None = setting(
        "Branch, tag or commit of an hf:// source.",
        unit="name",
        default=None,
        shown="main for an hf:// source",
        example="v1.0",
    )
    digest: Digest | None = setting(
        "What an oci:// image must be. Anything else is not loaded.",
        unit="sha256:hex",
        default=None,
        shown="absent, any content is taken",
        example="sha256:" + 64 * "a",
    )
    served_names: Annotated[list[ServedName], Unique()] = setting(
        "Names under which clients ask for the model; the first one is in the answers.",
        unit="list of names",
        factory=list,
        shown="the last part of the source",
        example=["smollm2"],
        most=16,
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "Precision of weights, activations and KV cache; auto takes the model's own.",
        unit="one of the names",
        default="auto",
        example="bfloat16",
    )
    max_model_len: ModelLength = setting(
        "Longest prompt and answer together; auto takes what the model knows.",
        unit="tokens",
        default="auto",
        example=8192,
    )
    quantization: Literal["none"] = setting(
        "Quantisation of the weights; none runs them as they are stored.",
        unit="one of the names",
        default="none",
        example="none",
    )
    token_secret_ref: SecretKeyRef | None = setting(
        "Secret with the access token for a source; no source that this version supports asks "
        "for one.",
        unit="reference",
        default=None,
        shown="absent, no token is sent",
        example={"name": "hub-token"},
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        *SOURCE_RULES,
        Rule(
            "revision",
            "!has(self.revision) || self.source.startsWith('hf://')",
            "must be absent, because only an hf:// source has revisions",
            "Remove revision, or name the version in the source.",
            lambda model: model.revision is None or model.source.startswith("hf://"),
        ),
        Rule(
            "digest",
            "!has(self.digest) || self.source.startsWith('oci://')",
            "must be absent, because only an oci:// image is checked by its digest",
            "Remove digest, or put the model into an image.",
            lambda model: model.digest is None or model.source.startswith("oci://"),
        ),
    )

    @property
    def location(self) -> ModelSource:
        return parse_source(self.source)

    @property
    def names(self) -> list[str]:
        """The served names, or the last part of the source where none is given."""
        if self.served_names:
            return self.served_names
        place = self.location
        last = (place.path or place.name).rstrip("/").rsplit("/", 1)[-1]
        return [re.split("[:@]", last)[0] if place.scheme == "oci" else last]
