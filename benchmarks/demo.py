"""What `gsparc demo` shows: sections and dependencies of packages that pretend to be new.

python benchmarks/demo.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

from _common import Timer, record
from gsparc import load_dataset
from gsparc.experiments.demo import run_demo

CLASSES = [
    ["method", "section of a new package", ""],
    ["accuracy", "accuracy", ".1%"],
    ["macro_f1", "macro-F1", ".1%"],
    ["ece", "calibration error", ".1%"],
]
LINKS = [
    ["method", "dependencies of a new package", ""],
    ["mrr", "MRR, best dependency", ".3f"],
    ["mrr_edges", "MRR, all dependencies", ".3f"],
    ["hits@10", "hits@10", ".1%"],
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    with Timer() as timer:
        result = run_demo(load_dataset("debian"), seed=args.seed).record
    print(f"{timer.seconds:.0f} s", result["summary"])
    tables = {
        "classes": {"columns": CLASSES, "rows": result["classification"]},
        "links": {"columns": LINKS, "rows": result["links"]},
    }
    kept = {name: result[name] for name in ("seed", "split", "gains", "summary", "seconds")}
    record("demo", {"tables": tables, "seconds_total": timer.seconds, **kept}, args.output)


if __name__ == "__main__":
    main()
