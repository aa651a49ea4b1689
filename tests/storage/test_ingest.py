"""Tables to a store: the same as in memory, gone on with after a stop, and every mistake named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsparc import FeatureError, Graph, GraphError, InputError, OutputError, StoreError, open_store
from gsparc.storage import IngestSettings, ingest
from gsparc.storage._edges import _joined, connect
from gsparc.storage.ingesting import check_ingest_memory
from gsparc.tables.joining import read_labels
from gsparc.tables.reading import read_table

NODES = {"id": [30, 10, 20, 40], "size": [1.0, 2.0, 4.0, 7.5], "label": ["b", "a", None, "b"]}
EDGES = {"source": [30, 10, 20, 20, 10], "target": [10, 30, 20, 40, 20]}


def write(folder: Path, nodes: Any = NODES, edges: Any = EDGES) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    return folder / "nodes.parquet", folder / "edges.parquet"


def test_a_graph_that_can_be_drawn(tmp_path: Path) -> None:
    store = ingest(*write(tmp_path), tmp_path / "store", IngestSettings(target="label"))
    # 30 - 10 - 20 - 40, in the order of the node table: 0 - 1 - 2 - 3
    assert store.graph.indptr.tolist() == [0, 1, 3, 5, 6]
    assert store.graph.indices.tolist() == [1, 0, 2, 1, 3, 2]
    assert store.graph.weights is None
    assert store.node_ids.tolist() == [30, 10, 20, 40]
    assert store.y is not None
    assert store.y.tolist() == [1, 0, -1, 1]
    assert store.class_names is not None
    assert store.class_names.tolist() == ["a", "b"]
    assert isinstance(store.X, np.memmap)
    assert store.X.shape == (4, 1)
    assert store.meta["edge_counts"] == {"rows": 5, "missing": 0, "unknown": 0, "self_loops": 1}
    assert repr(Graph.open(tmp_path / "store", node_ids=True)) == "Graph(num_nodes=4, num_edges=3, with node ids)"
    store.verify()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_the_same_graph_as_from_tables(tmp_path: Path, data: st.DataObject) -> None:
    names = data.draw(st.sampled_from([[5, 3, 9, 11], ["x", "yy", "é", "z"]]))
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), min_size=1, max_size=12))
    if all(a == b for a, b in pairs):
        pairs.append((names[0], names[1]))
    edges: dict[str, Any] = {"source": [a for a, _ in pairs], "target": [b for _, b in pairs]}
    weighted = data.draw(st.booleans())
    if weighted:
        values = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
        edges["weight"] = data.draw(st.lists(values, min_size=len(pairs), max_size=len(pairs)))
        edges["weight"][0] = edges["weight"][-1] = 0.5
    tables = write(tmp_path, {"id": names, "size": [1.0, 2.0, 3.5, 0.0]}, edges)
    ingest(*tables, tmp_path / "store", fresh=True)
    expected = Graph.from_table(
        pa.table(edges),
        nodes=pa.table({"id": names}),
        weight="weight" if weighted else None,
        source="source",
        target="target",
    )
    assert Graph.open(tmp_path / "store", node_ids=True) == expected


def test_text_files_and_several_parts_give_the_same_store(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = pa.table({"name": [f"n{i}" for i in range(60)], "size": rng.normal(size=60), "words": ["red fish"] * 60})
    edges = pa.table({"source": [f"n{i}" for i in range(59)], "target": [f"n{i + 1}" for i in range(59)]})
    (tmp_path / "nodes").mkdir()
    for part in range(3):
        pyarrow.csv.write_csv(nodes.slice(20 * part, 20), tmp_path / "nodes" / f"{part}.csv")
    pyarrow.csv.write_csv(edges, tmp_path / "edges.csv")
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    chosen = IngestSettings(text=("words",), numeric=("size",), holdout=0.0)
    one = ingest(tmp_path / "nodes", tmp_path / "edges.csv", tmp_path / "one", chosen)
    two = ingest(tmp_path / "nodes.parquet", tmp_path / "edges.csv", tmp_path / "two", chosen)
    assert one.meta["sparse"]
    assert one.graph == two.graph
    np.testing.assert_allclose(one.X.toarray(), two.X.toarray(), atol=1e-6)
    assert one.node_ids.tolist() == two.node_ids.tolist() == nodes["name"].to_pylist()


def test_held_out_rows_do_not_depend_on_the_parts_and_do_not_shape_the_features(tmp_path: Path) -> None:
    count = 400
    nodes = {"id": list(range(count)), "size": [float(i % 17) for i in range(count)]}
    edges = {"source": list(range(count - 1)), "target": list(range(1, count))}
    first = ingest(*write(tmp_path / "a", nodes, edges), tmp_path / "one", IngestSettings(seed=3))
    held = np.array(first.split)
    assert 20 < (held == 1).sum() < 70
    assert 20 < (held == 2).sum() < 70
    nodes["size"] = [1e6 * (held[i] > 0) + float(i % 17) for i in range(count)]
    again = ingest(*write(tmp_path / "b", nodes, edges), tmp_path / "two", IngestSettings(seed=3))
    assert np.array_equal(again.split, held)
    assert np.array_equal(np.array(first.X)[held == 0], np.array(again.X)[held == 0])


def test_a_stopped_ingest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gsparc.storage import ingesting as module

    tables, said = write(tmp_path), []
    real = module.write_csr

    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_csr", stop)
    with pytest.raises(KeyboardInterrupt):
        ingest(*tables, tmp_path / "store")
    with pytest.raises(StoreError, match=r"half written.*Repeat the gsparc ingest"):
        open_store(tmp_path / "store")
    monkeypatch.setattr(module, "write_csr", real)
    store = ingest(*tables, tmp_path / "store", stage=lambda sentence, done: said.append(sentence))
    assert "reading the nodes: done before" in said
    assert "joining the edges to the nodes: done before" in said
    assert store.graph.num_edges == 3
    write(tmp_path, edges={"source": [30], "target": [10]})  # other tables: nothing of it is kept
    assert ingest(*tables, tmp_path / "store").graph.num_edges == 1


@pytest.mark.parametrize(
    ("nodes", "edges", "kind", "words"),
    [
        ({**NODES, "id": [30, 10, 30, 40]}, EDGES, GraphError, r"column 'id'.*more than one row: 30 in rows 1, 3"),
        ({**NODES, "id": [30, None, 20, 40]}, EDGES, InputError, r"nodes.parquet, row 2: column 'id' holds no id"),
        (
            {**NODES, "id": ["a", "b", "c", "a\0"]},
            EDGES,
            InputError,
            "nodes.parquet: 1 node ids hold the character NUL",
        ),
        ({**NODES, "size": [1.0, float("nan"), 3.0, float("inf")]}, EDGES, FeatureError, r"row 4: size is inf"),
        (NODES, {"source": [30, 10], "target": [10, 99]}, GraphError, r"1 of 2 edges name a node.*\(first: 99\).*drop"),
        (NODES, {**EDGES, "weight": [1.0, -1.0, 1.0, 1.0, 1.0]}, GraphError, r"weights that are missing, negative"),
        (NODES, {"source": [10], "target": [10]}, GraphError, "none of the 1 edges"),
        (NODES, {"source": ["a"], "target": ["b"]}, GraphError, "the ids of the nodes are whole numbers"),
    ],
)
def test_bad_tables(tmp_path: Path, nodes: Any, edges: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        ingest(*write(tmp_path, nodes, edges), tmp_path / "store", IngestSettings(id="id"))


def test_numbers_that_are_nan_are_missing_as_null_is(tmp_path: Path) -> None:
    stores = []
    for place, nothing in enumerate((None, float("nan"))):
        tables = write(tmp_path / str(place), {**NODES, "size": pa.array([1.0, nothing, 4.0, 7.5])})
        stores.append(ingest(*tables, tmp_path / f"store{place}", IngestSettings(id="id")))
    null, nan = stores
    assert null.meta["missing_numbers"] == nan.meta["missing_numbers"] == 1
    np.testing.assert_array_equal(np.asarray(null.X), np.asarray(nan.X))


def test_dangling_edges_may_be_dropped(tmp_path: Path) -> None:
    tables = write(tmp_path, edges={"source": [30, 10], "target": [10, 99]})
    store = ingest(*tables, tmp_path / "store", IngestSettings(dangling="drop"))
    assert (store.graph.num_edges, store.meta["edge_counts"]["unknown"]) == (1, 1)


def test_one_of_many_files_with_another_width_or_column_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "nodes"
    folder.mkdir()
    for part, width in enumerate((4, 4, 3)):
        values = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(5.0 * width)), width)
        pq.write_table(pa.table({"id": [5 * part + i for i in range(5)], "v": values}), folder / f"{part}.parquet")
    pq.write_table(pa.table({"source": [0], "target": [1]}), tmp_path / "edges.parquet")
    with pytest.raises((FeatureError, InputError), match=r"2\.parquet: column 'v' holds lists of 3 numbers"):
        ingest(folder, tmp_path / "edges.parquet", tmp_path / "store")
    pq.write_table(pa.table({"id": [10], "w": [1.0]}), folder / "2.parquet")
    with pytest.raises((FeatureError, InputError), match=r"2\.parquet"):
        ingest(folder, tmp_path / "edges.parquet", tmp_path / "store")


def test_half_precision_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    nodes = {"id": [0, 1, 2], "v": [[1.0, 2.0], [3.0, 1e6], [0.0, 1.0]]}
    tables = write(tmp_path, nodes, {"source": [0], "target": [1]})
    with pytest.raises(FeatureError, match=r"row 2: v\[1\] is 1e\+06, beyond float16"):
        ingest(*tables, tmp_path / "store", IngestSettings(dtype="float16"))


def test_damage_is_found(tmp_path: Path) -> None:
    ingest(*write(tmp_path), tmp_path / "store")
    file = tmp_path / "store" / "indices.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=r"contents of indices.npy are not those"):
        open_store(tmp_path / "store").verify()
    file.write_bytes(bytes(data[:-4]))
    with pytest.raises(StoreError, match=r"indices.npy has .* bytes instead of"):
        open_store(tmp_path / "store")
    file.unlink()
    with pytest.raises(StoreError, match=r"indices\.npy is missing"):
        open_store(tmp_path / "store")


@pytest.mark.parametrize(
    ("version", "words"), [(99, "format 99.*Upgrade"), (0, "Ingest the tables again"), (None, "damaged")]
)
def test_another_version(tmp_path: Path, version: Any, words: str) -> None:
    ingest(*write(tmp_path), tmp_path / "store")
    file = tmp_path / "store" / "store.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format_version": version}))
    with pytest.raises(StoreError, match=words):
        open_store(tmp_path / "store")


def test_a_disk_without_room_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OutputError, match=r"needs about .* GB are free"):
        ingest(*write(tmp_path), tmp_path / "store")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    tables = write(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("dear")
    with pytest.raises(OutputError, match="exists and is no store"):
        ingest(*tables, tmp_path / "other")
    assert (tmp_path / "other" / "thesis.txt").read_text() == "dear"


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(InputError, match="at least 512MB"):
        check_ingest_memory("10MB")


def test_edges_are_streamed_past_the_names_and_never_held(tmp_path: Path) -> None:
    """The names of the nodes are hashed: the right side of a left join. DuckDB would turn it, since it cannot know how
    long a stream is."""
    base = connect(tmp_path, 1 << 30)
    base.execute("CREATE TABLE names AS SELECT range * 7 AS id, range AS place FROM range(100000)")
    ends = pa.schema([("s", pa.int64()), ("t", pa.int64())])
    base.register("incoming", pa.RecordBatchReader.from_batches(ends, []))
    plan = str(base.sql(f"EXPLAIN {_joined('integers', 100_000, False)}").fetchall())
    assert plan.count("Join Type: LEFT") == 2, plan
    base.close()


def decimals(values: list[int]) -> pa.Array:
    return pa.array(values).cast(pa.decimal128(19, 0)).cast(pa.decimal128(38, 0))


@pytest.mark.parametrize("made", [decimals, lambda values: pa.array(values, pa.float64())])
def test_decimals_and_whole_floats_are_ids(tmp_path: Path, made: Any) -> None:
    edges = {name: made(values) for name, values in EDGES.items()}
    store = ingest(*write(tmp_path, {**NODES, "id": made(NODES["id"])}, edges), tmp_path / "store")
    assert store.node_ids.tolist() == [30, 10, 20, 40]
    assert store.graph.indices.tolist() == [1, 0, 2, 1, 3, 2]


def test_whole_numbers_of_a_text_file_may_have_a_point(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,size\n30.0,1\n10.0,2\n20.0,4\n40.0,7.5\n")
    (tmp_path / "edges.csv").write_text("source,target\n30,10\n10,30.0\n20,20\n20,40\n10,20\n")
    store = ingest(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "store")
    assert store.node_ids.tolist() == [30, 10, 20, 40]
    assert store.graph.indices.tolist() == [1, 0, 2, 1, 3, 2]


def test_categories_that_look_like_numbers_keep_their_text(tmp_path: Path) -> None:
    lines = "".join(f"{i},{i},{('1.10', '1.20')[i % 2]}\n" for i in range(20))
    (tmp_path / "nodes.csv").write_text(f"id,size,version\n{lines}")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    asked = IngestSettings(categorical=("version",), holdout=0.0)
    store = ingest(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "store", asked)
    X = np.asarray(store.X)
    assert X.shape == (20, 3)
    assert sorted(X[:, :2].sum(axis=0).tolist()) == [10, 10]


@pytest.mark.parametrize(
    ("values", "names", "codes"),
    [
        (["-1", "1.0", "", "1"], [-1, 1], [0, 1, -1, 1]),
        (["True", "FALSE", "", "true"], ["false", "true"], [1, 0, -1, 1]),
    ],
)
def test_classes_are_those_of_a_fit(tmp_path: Path, values: list[str], names: list[Any], codes: list[int]) -> None:
    lines = [f"{name},{size},{value}" for name, size, value in zip("abcd", (1, 2, 4, 7), values, strict=True)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,size,kind", *lines]))
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    said: list[str] = []
    tables = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    store = ingest(
        *tables, tmp_path / "store", IngestSettings(target="kind"), stage=lambda words, _: said.append(words)
    )
    assert store.y is not None
    assert store.y.tolist() == codes
    assert store.meta["class_names"] == names
    found = read_labels(read_table(tables[0]), "kind")
    assert (found.codes.tolist(), found.names.tolist()) == (codes, names)
    assert any("-1 is a class in column 'kind', of 1 rows" in words for words in said) == (-1 in names)


@pytest.mark.parametrize("names", ["abcd", ["30", "10", "20", "40"], ["0", "1", "2", "3"]])
def test_an_edge_list_without_a_header_is_noticed(tmp_path: Path, names: list[str]) -> None:
    pq.write_table(
        pa.table({"id": [int(n) if n.isdigit() else n for n in names], "size": [1.0, 2.0, 4.0, 7.5]}),
        tmp_path / "nodes.parquet",
    )
    (tmp_path / "edges.csv").write_text(f"{names[0]},{names[1]}\n{names[1]},{names[2]}\n")
    said: list[str] = []
    tables = tmp_path / "nodes.parquet", tmp_path / "edges.csv"
    ingest(*tables, tmp_path / "store", stage=lambda words, _: said.append(words))
    assert any("if the file has no header, its first edge" in words for words in said)


@pytest.mark.parametrize("dotted", ["nodes", "edges", "neither"])
def test_ids_of_text_files_are_those_of_a_fit(tmp_path: Path, dotted: str) -> None:
    point = {name: ".0" if name == dotted else "" for name in ("nodes", "edges")}
    lines = [f"{name}{point['nodes']},{size}" for name, size in zip(NODES["id"], NODES["size"], strict=True)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,size", *lines]))
    ends = [f"{a}{point['edges']},{b}" for a, b in zip(EDGES["source"], EDGES["target"], strict=True)]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *ends, ",10", "x,10"]))
    asked = IngestSettings(dangling="drop")
    store = ingest(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "store", asked)
    assert store.meta["ids"] == "integers"
    assert store.node_ids.tolist() == [30, 10, 20, 40]
    assert store.graph.indices.tolist() == [1, 0, 2, 1, 3, 2]
    assert (store.meta["edge_counts"]["missing"], store.meta["edge_counts"]["unknown"]) == (1, 1)
    with pytest.raises(GraphError, match=r"1 of 7 edges .* \(first: 'x'; the ids of the nodes are whole numbers\)"):
        ingest(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "other")


def test_one_name_makes_all_ids_text(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,size\n30,1\n10,2\n007,4\n1e3,5\n")
    (tmp_path / "edges.csv").write_text("source,target\n30,10\n007,1e3\n")
    store = ingest(tmp_path / "nodes.csv", tmp_path / "edges.csv", tmp_path / "store")
    assert store.node_ids.tolist() == ["30", "10", "007", "1e3"]
    assert store.graph.indices.tolist() == [1, 0, 3, 2]


def test_json_says_its_types_itself(tmp_path: Path) -> None:
    lines = [json.dumps({"id": f"{i}", "size": i * i, "kind": f"{i % 2}"}) for i in range(6)]
    (tmp_path / "nodes.jsonl").write_text("\n".join(lines))
    (tmp_path / "edges.csv").write_text("source,target\n0,2\n1,3\n")
    store = ingest(tmp_path / "nodes.jsonl", tmp_path / "edges.csv", tmp_path / "store", IngestSettings(target="kind"))
    assert store.node_ids.tolist() == [str(i) for i in range(6)]
    assert store.meta["class_names"] == ["0", "1"]


def test_text_files_of_other_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "a.csv").write_text("id,size\na,1\nb,2\n")
    (tmp_path / "nodes" / "b.csv").write_text("id,width\nc,4\nd,7\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\nc,d\n")
    with pytest.raises(FeatureError, match=r"do not have the same columns \(only in one of them: size, width\)"):
        ingest(tmp_path / "nodes", tmp_path / "edges.csv", tmp_path / "store")
