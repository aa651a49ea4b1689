"""Make docs/_static/results.html, the page of all tables and figures of the paper, from results/*.json.

The page carries a fingerprint of the files it was made from, so ``--check`` can tell whether it is up to date
without drawing anything, whatever the version of matplotlib.

Usage: python scripts/results_page.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gsparc.exceptions import GsparcError
from gsparc.report.reproduction import fingerprint, made_from, write_page

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the page, or with ``--check`` say whether it is out of date (exit 1)."""
    parser = argparse.ArgumentParser(description="Make the results page of the documentation from results/.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the page is out of date")
    check = parser.parse_args(argv).check
    results, page = root / "results", root / "docs" / "_static" / "results.html"
    try:
        if check:
            if page.is_file() and made_from(page) == fingerprint(results):
                return 0
            print("docs/_static/results.html is out of date. Run: make results-page", file=sys.stderr)
            return 1
        print(write_page(results, page).relative_to(root))
    except GsparcError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
