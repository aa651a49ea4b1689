import { effect, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "../api";
import { boxOf, grow } from "../map/camera";
import { listen } from "../map/input";
import { densestPlaces } from "../map/labels";
import type { Rect } from "../map/overlay";
import type { Style } from "../map/renderer";
import { Scene } from "../map/scene";
import { toRgb } from "../palette";
import { card, categories, categoryOf, closeNode, colourBy, counts, firstView, hidden, hot, jump, landed, lookOf, map, nameOf, openNode, pointed, said, theme, view } from "../state";
import type { NodeCard } from "../types";
import { Icon } from "./Icons";
import { Legend } from "./Legend";
import { Swatch } from "./Swatch";

interface Hover {
  index: number;
  x: number;
  y: number;
}

export function MapView(): JSX.Element {
  const surface = useRef<HTMLDivElement>(null);
  const nodes = useRef<HTMLCanvasElement>(null);
  const marks = useRef<HTMLCanvasElement>(null);
  const scene = useRef<Scene | null>(null);
  const hover = useSignal<Hover | null>(null);
  const [missing, setMissing] = useState("");

  useEffect(() => {
    seen.clear(); // another model has other nodes at the same places
    let made: Scene;
    try {
      made = new Scene(nodes.current!, marks.current!, {
        hover: (index, x, y) => (hover.value = index < 0 ? null : { index, x, y }),
        pick: (index) => pick(index),
        moved: (box) => (view.value = box),
        covered: () => panels(surface.current!),
        drawn: () => performance.mark("map-drawn"),
      });
    } catch (error) {
      setMissing(error instanceof Error ? error.message : String(error));
      return;
    }
    scene.current = made;
    const undo = [watchSize(surface.current!, made), connect(made), listen(surface.current!, made, closeNode)];
    return () => {
      undo.forEach((stop) => stop());
      made.destroy();
    };
  }, []);

  const label = `Map of ${map.value?.count.toLocaleString("en")} nodes. Arrow keys move, plus and minus zoom, Enter opens the node in the middle.`;
  return (
    <>
      <div id="map" class="map" ref={surface} tabIndex={0} role="application" aria-label={label}>
        <canvas ref={nodes} aria-hidden="true" />
        <canvas ref={marks} aria-hidden="true" />
        {hover.value ? <Tooltip hover={hover.value} width={surface.current?.clientWidth ?? 0} height={surface.current?.clientHeight ?? 0} /> : null}
      </div>
      {missing ? <p class="no-gl" role="alert">The map needs WebGL 2, and {missing}. Search, node cards and predictions work without it.</p> : null}
      <Legend />
      <Key />
      <div class="zoom" role="group" aria-label="Zoom">
        <button type="button" class="tool" aria-label="Zoom in" title="Zoom in (+)" onClick={() => scene.current?.zoom(1.6)}><Icon name="plus" /></button>
        <button type="button" class="tool" aria-label="Zoom out" title="Zoom out (−)" onClick={() => scene.current?.zoom(1 / 1.6)}><Icon name="minus" /></button>
        <button type="button" class="tool" aria-label="See the whole map" title="See the whole map (0)" onClick={() => scene.current?.goHome()}><Icon name="home" size={16} /></button>
      </div>
    </>
  );
}

function pick(index: number): void {
  if (index >= 0) void openNode(index, false);
  else if (card.value) closeNode();
  else said.value = "No node here.";
}

/** What the lines of a new node and of an open one mean. */
function Key(): JSX.Element | null {
  const prediction = landed.value?.prediction.position ? landed.value.prediction : null;
  const linked = card.value?.neighbours?.length ?? 0;
  if (!prediction && !linked) return null;
  return (
    <ul class="key" aria-label="Marks on the map">
      {linked ? <li><span class="mark-line thin" />known edge</li> : null}
      {prediction ? <li><span class={prediction.abstained ? "mark-star warn" : "mark-star"}><Icon name="star" size={14} /></span>new node</li> : null}
      {prediction?.near?.length ? <li><span class="mark-line" />inferred neighbour</li> : null}
      {prediction?.links?.length ? <li><span class="mark-line dashed" />suggested link</li> : null}
    </ul>
  );
}

/** Where panels lie over the map: names drawn there could not be read. */
function panels(surface: HTMLElement): Rect[] {
  const { left, top } = surface.getBoundingClientRect();
  return [...surface.parentElement!.querySelectorAll(".legend, .zoom, .key")].map((panel) => {
    const box = panel.getBoundingClientRect();
    return [box.left - left, box.top - top, box.right - left, box.bottom - top];
  });
}

const seen = new Map<number, NodeCard>();

function Tooltip({ hover, width, height }: { hover: Hover; width: number; height: number }): JSX.Element {
  const [node, setNode] = useState(seen.get(hover.index));
  useEffect(() => {
    const known = seen.get(hover.index);
    setNode(known);
    if (known) return;
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      const found = await api.getNodeAt(hover.index, stop.signal).catch(() => null);
      if (!found) return;
      seen.set(hover.index, found);
      setNode(found);
    }, 90);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [hover.index]);
  const data = map.value!;
  const cluster = data.clusterOf[hover.index]!;
  const name = data.classes[data.classOf[hover.index]!];
  const place = { left: `${Math.min(hover.x, width - 190)}px`, top: `${Math.min(hover.y, height - 96)}px` };
  return (
    <div class="tooltip" style={place}>
      <strong>{node?.id ?? " "}</strong>
      <span><Swatch look={lookOf(categoryOf.value[hover.index]!)} size={10} />{[name ?? (data.classes.length ? "unlabelled" : ""), cluster >= 0 ? `cluster ${cluster}` : ""].filter(Boolean).join(" · ")}</span>
      {node?.degree !== undefined ? <span>{node.degree.toLocaleString("en")} known {node.degree === 1 ? "neighbour" : "neighbours"}</span> : null}
    </div>
  );
}

function watchSize(surface: HTMLElement, scene: Scene): () => void {
  const apply = (): void => {
    const { clientWidth: width, clientHeight: height } = surface;
    const side = width > 700 ? 248 : 12; // the legend lies over the left edge
    scene.insets = { left: side, right: 36, top: width > 700 ? 28 : 60, bottom: 36 };
    scene.resize(width, height, devicePixelRatio || 1);
  };
  const watcher = new ResizeObserver(apply);
  watcher.observe(surface);
  apply();
  return () => watcher.disconnect();
}

/** Let the scene follow the page's state. */
function connect(scene: Scene): () => void {
  const data = map.value!;
  scene.setData(data, firstView);
  const undo = [
    effect(() => scene.setStyles(styles(data.count), colourBy.value, theme.value)),
    effect(() => {
      scene.marks.anchors = densestPlaces(data.x, data.y, categoryOf.value, counts.value, scene.homeView);
      scene.marks.names = nameOf;
      scene.marks.labelled = (category) => !hidden.peek().has(category);
      scene.marks.hot = hot.value;
      scene.invalidate();
    }),
    effect(() => {
      const open = card.value;
      scene.marks.selected = open ? (scene.place(open.index) ?? open.position) : null;
      scene.marks.name = open ? String(open.id) : "";
      scene.marks.neighbours = neighbourPlaces(scene, open);
      scene.invalidate();
    }),
    effect(() => scene.setHover(pointed.value ?? -1)),
    effect(() => follow(scene)),
    effect(() => land(scene)),
  ];
  return () => undo.forEach((stop) => stop());
}

let lastJump = 0;

function follow(scene: Scene): void {
  const { box, index, run } = jump.value;
  if (run === lastJump) return;
  lastJump = run;
  if (box) scene.setView(box);
  const at = index === undefined ? null : scene.place(index);
  if (!at) return;
  const linked = card.peek()?.index === index ? neighbourPlaces(scene, card.peek()) : [];
  if (linked.length) scene.showBox(grow(boxOf([at, ...linked]), 0.12, spanOf(scene) / 6));
  else scene.showPoint(at);
}

function neighbourPlaces(scene: Scene, open: NodeCard | null): [number, number][] {
  return (open?.neighbours ?? []).map((other) => scene.place(other.index ?? -1)).filter((place) => place !== null);
}

function spanOf(scene: Scene): number {
  const home = scene.homeView;
  return Math.max(home.x1 - home.x0, home.y1 - home.y0);
}

let lastLanding = 0;

function land(scene: Scene): void {
  const fresh = landed.value;
  const prediction = fresh?.prediction;
  if (!fresh || !prediction?.position) {
    scene.marks.fresh = null;
    scene.invalidate();
    return;
  }
  const arrows = (["link", "near"] as const).flatMap((kind) =>
    ((kind === "near" ? prediction.near : prediction.links) ?? []).flatMap((other) => {
      const to = scene.place(fresh.places.get(String(other.id)) ?? -1);
      return to ? [{ to, kind }] : [];
    }),
  );
  scene.marks.fresh = { at: prediction.position, arrows, abstained: prediction.abstained };
  if (fresh.run === lastLanding) return;
  lastLanding = fresh.run;
  const box = grow(boxOf([prediction.position, ...arrows.map((arrow) => arrow.to)]), 0.2, spanOf(scene) / 8);
  scene.land();
  if (!fresh.quiet) scene.showBox(box);
}

/** One style a category, the first for nodes that have none. */
function styles(count: number): Style[] {
  const usual = count > 60_000 ? 0.7 : count > 15_000 ? 0.78 : 0.88;
  return Array.from({ length: categories.value + 1 }, (_, i) => {
    const category = i - 1;
    const look = lookOf(category);
    const warm = hot.value === null ? 1 : hot.value === category ? 1.25 : 0.14;
    const alpha = hidden.value.has(category) ? 0 : Math.min(1, (category < 0 ? usual * 0.7 : usual) * warm);
    return { rgb: toRgb(look.colour), alpha, shape: look.shape, size: look.shape ? 1.15 : 1 };
  });
}

