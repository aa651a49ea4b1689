"""What the results page adds to the look of all pages."""

from __future__ import annotations

__all__ = ["RESULT_STYLE"]

RESULT_STYLE = """
:root { --even: #6b5a12; --paper: #6a727c; }
@media (prefers-color-scheme: dark) { :root { --even: #e3c765; --paper: #98a1ac; } }
main { max-width: 1240px; }
a { color: var(--ours); }
:focus-visible { outline: 3px solid var(--ours); outline-offset: 2px; border-radius: 3px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: .6rem; background: var(--card); padding: .4rem .8rem; z-index: 2; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.scroll { position: relative; }
caption { position: sticky; left: 0; max-width: calc(100vw - 3rem); }
nav ol { columns: 2 20rem; margin: .3rem 0 0; padding-left: 1.4rem; }
section { scroll-margin-top: 1rem; }
section > h2 { border-top: 1px solid var(--line); padding-top: 1.6rem; }
h3 { margin: 1.6rem 0 .3rem; }
.question { font-size: 1.08rem; }
.verdict .facts { margin: .2rem 0; }
.facts .win b { color: var(--good); } .facts .even b { color: var(--even); } .facts .loss b { color: var(--bad); }
.sentences { margin: .5rem 0; padding-left: 1.2rem; max-width: 78ch; }
.sentences li { margin: .15rem 0; }
.sentences .note { color: var(--soft); }
.sentences .win::marker { content: "▲ "; color: var(--good); }
.sentences .even::marker { content: "● "; color: var(--even); }
.sentences .loss::marker { content: "▼ "; color: var(--bad); }
.sentences .unknown::marker { content: "? "; color: var(--soft); }
.win.badge { color: var(--good); } .even.badge { color: var(--even); } .loss.badge { color: var(--bad); }
.badge { font-weight: 650; }
table.results { font-size: .92rem; width: auto; min-width: 55%; }
table.results th:first-child { position: sticky; left: 0; background: var(--card); z-index: 1; }
table.results th, table.results td { padding: .36rem .5rem; }
table.results tfoot th { white-space: normal; max-width: 10rem; }
table.results td, table.results tbody th, table.results tfoot th { vertical-align: top; }
table.results thead th { vertical-align: bottom; }
.more { color: var(--soft); font-size: .82rem; font-weight: 400; }
.paper { display: block; color: var(--paper); font-size: .8rem; font-weight: 400; }
td.best { font-weight: 700; }
td.best::before { content: "★ "; color: var(--good); font-size: .78em; }
td.reason { white-space: normal; text-align: left; color: var(--soft); font-size: .8rem; line-height: 1.3;
  min-width: 7rem; font-weight: 400; padding-top: .48rem; }
td.reason:not([colspan]) { max-width: 9rem; }
tr.ours td.reason { color: var(--soft); font-weight: 400; }
tfoot th, tfoot td { border-bottom: 0; border-top: 2px solid var(--line); }
tfoot td .more { display: inline-block; white-space: normal; max-width: 7.5rem; line-height: 1.3; }
table.words td, table.words th { white-space: normal; text-align: left; vertical-align: top; }
table.words { font-size: .92rem; }
.warning { border-left: 4px solid var(--even); background: var(--card); padding: .4rem 1rem; margin: .7rem 0; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 255px), 1fr)); gap: .8rem 1rem; }
.panels svg { max-width: 345px; }
.key { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: 0 0 .5rem; padding: 0; list-style: none;
  font-size: .88rem; }
details.more-figures { margin: .8rem 0; }
.inner { padding-left: 1.1rem; }
code { font-size: .88em; overflow-wrap: anywhere; }
@media (max-width: 620px) {
  table.words th, table.words td { padding: .3rem .35rem; overflow-wrap: anywhere; }
  table.words .more { display: block; }
  table.words tbody th { min-width: 6.4rem; }
  table.results th:first-child { max-width: 8.5rem; white-space: normal; overflow-wrap: anywhere; }
}
@media print {
  :root { color-scheme: light; --bg: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; --ours: #174f8f;
    --good: #14602f; --bad: #93201a; --even: #5d4e0f; --paper: #555; --tint: #f2f5f9; }
  html { font-size: 11px; } body { font-size: 1rem; } main { max-width: none; padding: 0; }
  .scroll { overflow: visible; } table.results { font-size: .84rem; } th, td { padding: .2rem .3rem; }
  tfoot { display: table-row-group; }
  figure, .scroll, tr, .verdict { break-inside: avoid; } h2, h3, caption { break-after: avoid; }
  .panels { grid-template-columns: repeat(4, 1fr); }
  td.reason { min-width: 0; }
  details::details-content { content-visibility: visible; height: auto; }
}
"""
