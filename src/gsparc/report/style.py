"""Colours and the style sheet of the page: readable on light and on dark, without anything from outside."""

from __future__ import annotations

__all__ = ["BASELINE", "CLASS_COLOURS", "OTHER", "OURS", "STYLE"]

OURS = "#2f7fd6"
BASELINE = "#8b94a0"
OTHER = "#a3a9b1"
# of middle lightness, so that each stands out on white and on near-black
CLASS_COLOURS = (
    "#2f7fd6",
    "#e07b1f",
    "#2e9f52",
    "#d8433b",
    "#8e63c7",
    "#8f6b4f",
    "#d95fa8",
    "#a99a1d",
    "#1fa7b8",
    "#5b6fd8",
)

STYLE = """
:root { color-scheme: light dark; --bg: #fbfbfa; --card: #ffffff; --ink: #1d232b; --soft: #59636f;
  --line: #dde1e6; --ours: #1f6fc6; --good: #19733a; --bad: #b3261e; --tint: #eef4fc; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171c; --card: #1c2027; --ink: #e6e9ee;
  --soft: #a3adb9; --line: #343b46; --ours: #6db1ff; --good: #6fce8f; --bad: #ff8a80; --tint: #1b2a3d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .5rem 0; max-width: 78ch; }
.soft, figcaption, caption { color: var(--soft); font-size: .92rem; }
.verdict { background: var(--tint); border-left: 4px solid var(--ours); border-radius: 6px;
  padding: .7rem 1.1rem; margin: 1.2rem 0; }
.facts { display: flex; flex-wrap: wrap; gap: .4rem 1.7rem; margin: 1rem 0 0; padding: 0; list-style: none; }
.facts b { display: block; font-size: 1.25rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 1.2rem;
  align-items: start; }
figure { margin: .8rem 0; padding: .9rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
figure svg { display: block; width: 100%; height: auto; color: var(--ink); }
figcaption { margin-top: .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; background: var(--card); margin: .8rem 0; }
caption { text-align: left; padding-bottom: .4rem; }
th, td { padding: .42rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
table.words { width: auto; }
.words th, .words td { text-align: left; padding-right: 2.4rem; }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 500; }
tr.ours th, tr.ours td { color: var(--ours); font-weight: 650; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); gap: 1rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.1rem; }
.card .tag { font-size: .78rem; letter-spacing: .04em; text-transform: uppercase; color: var(--soft); }
.card h4 { margin: .9rem 0 .2rem; font-size: .88rem; color: var(--soft); font-weight: 600; }
.card ol, .card ul { margin: 0; padding-left: 1.3rem; }
.card li { overflow-wrap: anywhere; }
.yes { color: var(--good); font-weight: 650; }
.no { color: var(--bad); font-weight: 650; }
details { margin-top: 2rem; }
summary { cursor: pointer; font-weight: 600; }
@media (max-width: 560px) { main { padding: 1.4rem 1rem 3rem; } h1 { font-size: 1.6rem; }
  th, td { padding: .4rem .3rem; font-size: .88rem; } thead th { white-space: normal; vertical-align: bottom; }
  #map figure { overflow-x: auto; } #map svg { min-width: 620px; } #map figcaption { position: sticky; left: 0; } }
"""
