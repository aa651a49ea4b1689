"""The answers, as OpenAPI describes them. They are written as bytes by ``answers``; a test holds the two together."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ClusterAnswer",
    "EmbedAnswer",
    "ErrorAnswer",
    "Health",
    "Info",
    "LinksAnswer",
    "NodeCard",
    "PredictAnswer",
    "Ready",
    "Reloaded",
    "SearchAnswer",
]

Id = str | int


class _Exact(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RowProblem(_Exact):
    row: int = Field(description="place in the list of records or vectors that was sent, from 0")
    message: str


class Error(_Exact):
    code: str = Field(description="for programs", examples=["bad_rows"])
    message: str = Field(description="one sentence for people")
    rows: list[RowProblem] | None = Field(None, description="the rows that are meant, where that is known")


class ErrorAnswer(_Exact):
    error: Error


class Link(_Exact):
    id: Id
    score: float
    index: int | None = Field(description="place of the node on the map")


class Near(_Exact):
    id: Id
    distance: float
    class_: Id | None = Field(alias="class")
    index: int | None


class PredictRow(_Exact):
    id: Id | None = Field(description="the record's own id, null where it has none")
    class_: Id | None = Field(alias="class")
    confidence: float | None
    probabilities: dict[str, float] = Field(description="the ten most probable classes")
    set: list[Id] = Field(description="holds the true class with the promised coverage")
    abstained: bool
    why: str = Field(description="why the model would rather not answer; empty if it would")
    cluster: int | None
    links: list[Link]
    near: list[Near]
    position: list[float] | None


class _Answer(_Exact):
    model: str = Field(description="version of the model that answered")
    ignored_edges: int | None = Field(None, description="edges whose node the model does not know")
    missing_columns: list[str] | None = Field(None, description="columns that some record left out, taken as null")


class PredictAnswer(_Answer):
    predictions: list[PredictRow]


class LinksRow(_Exact):
    id: Id | None
    links: list[Link]


class LinksAnswer(_Answer):
    predictions: list[LinksRow]


class ClusterRow(_Exact):
    id: Id | None
    cluster: int | None
    memberships: list[float] | None


class ClusterAnswer(_Answer):
    predictions: list[ClusterRow]


class EmbedRow(_Exact):
    id: Id | None
    embedding: list[float]
    position: list[float] | None


class EmbedAnswer(_Answer):
    predictions: list[EmbedRow]


class Health(_Exact):
    status: str


class Reload(_Exact):
    ok: bool = Field(description="false: the folder holds something newer that cannot be used")
    message: str


class Ready(_Exact):
    ready: bool
    version: str
    queue_rows: int
    reload: Reload


class Limits(_Exact):
    queue: int
    max_rows: int
    max_bytes: int
    timeout: float


class Info(_Exact):
    name: str
    version: str
    library: str
    loaded_at: str
    tasks: list[str]
    classes: list[Id]
    counts: dict[str, int]
    form: list[dict[str, Any]] = Field(description="the columns that records hold; others are ignored")
    id_column: str | None
    n_features: int = Field(description="width of a vector")
    limits: Limits
    reload: Reload
    report: dict[str, Any] = Field(description="what was measured when the model was fitted")


class NodeRef(_Exact):
    id: Id
    index: int
    class_: Id | None = Field(alias="class")


class NodeCard(_Exact):
    id: Id
    index: int
    class_: Id | None = Field(alias="class")
    cluster: int | None
    position: list[float]
    degree: int | None = Field(None, description="number of known nodes that it is linked to; absent without edges")
    neighbours: list[NodeRef] | None = Field(None, description="the first 50 of them")


class SearchHit(_Exact):
    id: Id
    index: int
    class_: Id | None = Field(alias="class")
    cluster: int | None
    position: list[float]


class SearchAnswer(_Exact):
    results: list[SearchHit]


class Reloaded(_Exact):
    version: str
