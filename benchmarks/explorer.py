"""The explorer with 100,000 nodes in headless Chromium: time to the first paint, and the slowest frame.

    python benchmarks/explorer.py

The service is the stand-in of the tests on loopback: what is measured is the page. Chromium draws in software, so a
machine with a graphics card does better. Frames are timed by the page's own requestAnimationFrame while real
mouse and wheel events pan and zoom.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from _common import record

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "server"))
from _chromium import Browser, Page
from _fake_service import FakeService

COLUMNS = [
    ["nodes", "nodes", ",d"],
    ["first_paint_s", "first paint, s", ".2f"],
    ["map_drawn_s", "map drawn, s", ".2f"],
    ["p50_frame_ms", "frame p50, ms", ".0f"],
    ["p99_frame_ms", "frame p99, ms", ".0f"],
    ["slowest_frame_ms", "slowest frame, ms", ".0f"],
]
DRAWN = "performance.getEntriesByName('map-drawn')[0]?.startTime"
WATCH = """
window.__frames = [];
window.__watching = true;
(function next(last) {
  requestAnimationFrame((now) => { __frames.push(now - last); if (__watching) next(now); });
})(performance.now());
"""


def load(page: Page, url: str) -> tuple[float, float]:
    """Seconds from the start of the navigation to the first contentful paint, and to the drawn map."""
    page.open(url)
    drawn = page.wait(DRAWN, 60)
    paint = page.wait("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
    return paint / 1000, drawn / 1000


def gestures(page: Page, seconds: float) -> None:
    """Drag in circles, then zoom in and out by the wheel, as fast as events are taken."""
    x, y = 600.0, 430.0
    page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    start = time.monotonic()
    while (t := time.monotonic() - start) < seconds:
        angle = 2 * math.pi * t
        page.mouse("mouseMoved", x + 180 * math.sin(angle), y + 120 * (1 - math.cos(angle)), button="left", buttons=1)
    page.mouse("mouseReleased", x, y, button="left", clickCount=1)
    start = time.monotonic()
    while (t := time.monotonic() - start) < seconds:
        inwards = (t % 2) < 1
        page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-60 if inwards else 60)


def measure(browser: Browser, url: str, seconds: float, loads: int) -> dict[str, Any]:
    with browser.page(calm=False) as page:
        page.open(f"{url}info")  # a browser that has just been started: its start is not the page's
        page.wait("document.readyState === 'complete'")
    paints, draws = [], []
    for _ in range(loads):
        with browser.page(calm=False) as page:
            paint, drawn = load(page, url)
        paints.append(paint)
        draws.append(drawn)
    with browser.page(calm=False) as page:
        load(page, url)
        time.sleep(1)
        page.run(WATCH)
        gestures(page, seconds)
        frames = np.array(page.run("(window.__watching = false, window.__frames)")[1:])
    return {
        "first_paint_s": max(paints),
        "map_drawn_s": max(draws),
        "map_drawn_all_s": draws,
        "frames": len(frames),
        "p50_frame_ms": float(np.percentile(frames, 50)),
        "p99_frame_ms": float(np.percentile(frames, 99)),
        "slowest_frame_ms": float(frames.max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[34_000, 100_000])
    parser.add_argument("--seconds", type=float, default=8.0, help="of panning, and as many of zooming")
    parser.add_argument("--loads", type=int, default=3, help="fresh loads; the slowest is reported")
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    rows = []
    load_before = round(os.getloadavg()[0], 1)  # a busy machine draws slower: software drawing is the processor's work
    with Browser() as browser:
        version = browser.send("Browser.getVersion")["product"].removeprefix("Headless")
        for nodes in arguments.nodes:
            with FakeService(nodes, classes=51, clusters=20) as service:
                row = {"nodes": nodes, **measure(browser, service.url, arguments.seconds, arguments.loads)}
            print({key: value for key, value in row.items() if key != "map_drawn_all_s"})
            rows.append(row)
    facts: dict[str, Any] = {"browser": version, "drawing": "SwiftShader, in software", "window": [1280, 800]}
    facts["load_before"] = load_before
    record("explorer", {"columns": COLUMNS, "rows": rows, **facts}, arguments.output)


if __name__ == "__main__":
    main()
