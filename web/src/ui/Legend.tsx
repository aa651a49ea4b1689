import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { categories, colourBy, counts, hidden, hot, lookOf, map, nameOf, onlyCategory, setColourBy, toggleCategory } from "../state";
import { Icon } from "./Icons";
import { Swatch } from "./Swatch";

const SHOWN = 60; // beyond that a legend is not read; the rest stays on the map

export function Legend(): JSX.Element {
  const [open, setOpen] = useState(() => !matchMedia("(max-width: 760px)").matches);
  const both = (map.value?.classes.length ?? 0) > 0 && (map.value?.clusters ?? 0) > 0;
  const order = Array.from({ length: categories.value }, (_, i) => i)
    .filter((category) => counts.value[category + 1]! > 0)
    .sort((a, b) => counts.value[b + 1]! - counts.value[a + 1]! || a - b);
  const rows = order.slice(0, SHOWN);
  if (counts.value[0]) rows.push(-1);
  return (
    <section class="legend" data-open={open ? "" : undefined} aria-label="Legend">
      <div class="legend-top">
        {both ? (
          <div class="segmented" role="radiogroup" aria-label="Colour by">
            {(["class", "cluster"] as const).map((mode) => (
              <label key={mode}>
                <input type="radio" name="colour-by" checked={colourBy.value === mode} onChange={() => setColourBy(mode)} />
                <span>{mode === "class" ? "Classes" : "Clusters"}</span>
              </label>
            ))}
          </div>
        ) : <h2>{colourBy.value === "class" ? "Classes" : "Clusters"}</h2>}
        {hidden.value.size ? <button type="button" class="text-button" onClick={() => (hidden.value = new Set())}>Show all</button> : null}
        <button type="button" class="tool small" aria-expanded={open} aria-controls="legend-list" aria-label={open ? "Fold the legend" : "Unfold the legend"} onClick={() => setOpen(!open)}>
          <span class={open ? "turn" : ""}><Icon name="down" size={16} /></span>
        </button>
      </div>
      <ul id="legend-list" hidden={!open} onPointerLeave={() => (hot.value = null)}>
        {rows.map((category) => <Entry key={category} category={category} />)}
        {order.length > SHOWN ? <li class="more">and {order.length - SHOWN} smaller ones</li> : null}
        {!rows.length ? <li class="more">No {colourBy.value === "class" ? "classes" : "clusters"} in this model.</li> : null}
      </ul>
    </section>
  );
}

function Entry({ category }: { category: number }): JSX.Element {
  const off = hidden.value.has(category);
  const name = nameOf(category);
  const warm = (): void => void (hot.value = off ? null : category);
  return (
    <li data-off={off ? "" : undefined} onPointerEnter={warm}>
      <label title={`Show or hide ${name}`}>
        <input type="checkbox" checked={!off} onFocus={(event) => event.currentTarget.matches(":focus-visible") && warm()} onBlur={() => (hot.value = null)} onChange={() => { toggleCategory(category); hot.value = null; }} />
        <Swatch look={lookOf(category)} />
        <span class="grow">{name}</span>
        <small>{counts.value[category + 1]!.toLocaleString("en")}</small>
      </label>
      <button type="button" class="only" onClick={() => { onlyCategory(category); hot.value = null; }} aria-label={`Show only ${name}`}>only</button>
    </li>
  );
}
