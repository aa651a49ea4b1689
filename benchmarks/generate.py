"""How long the block model takes at the size of Reddit and of Amazon2M, and how much memory.

Each size runs in a process of its own, so that its peak memory is its own::

    python benchmarks/generate.py            # both, writes benchmarks/results/generate.json
    python benchmarks/generate.py reddit     # one size, prints its figures
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np

from _common import PeakMemory, Timer, record

COLUMNS = [
    ["size", "size of", ""],
    ["num_nodes", "nodes", ",d"],
    ["edges_made", "edges", ",d"],
    ["num_features", "features", ",d"],
    ["seconds", "seconds", ".0f"],
    ["maxrss_gb", "peak memory, GB", ".1f"],
]
SIZES = {
    "reddit": {"num_nodes": 232_965, "num_edges": 11_606_919, "num_features": 602, "num_classes": 41},
    "amazon2m": {"num_nodes": 2_449_029, "num_edges": 61_859_140, "num_features": 100, "num_classes": 47},
}


def measure(name: str) -> dict[str, object]:
    """Generate one size and say what it cost."""
    from gsparc.datasets import make_blocks

    with PeakMemory() as memory, Timer() as timer:
        data = make_blocks(**SIZES[name], random_state=0)
    degree = np.diff(data.graph.indptr)
    return {
        "size": name,
        **SIZES[name],
        "seconds": round(timer.seconds, 1),
        **memory.as_dict(),
        "edges_made": data.graph.num_edges,
        "branching": list(data.extra["branching"]),
        "degree_median": float(np.median(degree)),
        "degree_max": int(degree.max()),
        "isolated": int((degree == 0).sum()),
    }


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    rows = []
    for name in SIZES:
        done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
        print(rows[-1], flush=True)
    record("generate", {"random_state": 0, "columns": COLUMNS, "rows": rows})


if __name__ == "__main__":
    main()
