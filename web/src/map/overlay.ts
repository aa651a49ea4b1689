import type { Theme } from "../palette";
import { type Camera, type Size, toScreen } from "./camera";
import type { Anchor } from "./labels";

type Point = [number, number];
export type Rect = [number, number, number, number]; // left, top, right, bottom in CSS pixels

export interface Arrow {
  to: Point;
  kind: "near" | "link";
}

/** What is drawn over the dots. Coordinates are data units. */
export interface Marks {
  anchors: Anchor[];
  names: (category: number) => string;
  labelled: (category: number) => boolean;
  hot: number | null;
  hover: Point | null;
  selected: Point | null;
  neighbours: Point[];
  name: string; // of the selected node
  fresh: { at: Point; arrows: Arrow[]; abstained: boolean } | null;
  landing: number; // 0 above the map .. 1 landed
  reach: number; // how far the lines have grown
  pulse: number; // 0..1, once after landing
  crosshair: boolean;
}

const INK = {
  light: { text: "#1b2230", halo: "rgba(255,255,255,.86)", ring: "#111827", line: "rgba(31,41,55,.62)", edge: "rgba(31,41,55,.44)", accent: "#4f46e5", link: "#0f766e", warn: "#b45309", paper: "#ffffff" },
  dark: { text: "#eef1f6", halo: "rgba(16,19,25,.82)", ring: "#f8fafc", line: "rgba(226,232,240,.66)", edge: "rgba(226,232,240,.42)", accent: "#a5b4fc", link: "#5eead4", warn: "#fbbf24", paper: "#101319" },
} as const;

const MOST_LABELS = 18;

export function drawMarks(context: CanvasRenderingContext2D, size: Size, ratio: number, camera: Camera, theme: Theme, marks: Marks, middle: Point, covered: readonly Rect[]): void {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, size.width, size.height);
  const place = ([x, y]: Point): Point => toScreen(camera, size, x, y);
  if (marks.selected) drawSelected(context, theme, place(marks.selected), marks.neighbours.map(place));
  const taken = [...covered];
  if (marks.selected && marks.name) taken.push(drawName(context, size, theme, place(marks.selected), marks.name));
  drawLabels(context, size, camera, theme, marks, taken);
  if (marks.hover) ring(context, place(marks.hover), 7, INK[theme].ring, 2);
  if (marks.fresh) drawFresh(context, theme, marks, place);
  if (marks.crosshair) drawCrosshair(context, middle, INK[theme].ring);
}

function drawSelected(context: CanvasRenderingContext2D, theme: Theme, at: Point, neighbours: Point[]): void {
  const ink = INK[theme];
  context.strokeStyle = ink.edge;
  context.lineWidth = 1.2;
  context.beginPath();
  for (const to of neighbours) {
    context.moveTo(...at);
    context.lineTo(...to);
  }
  context.stroke();
  for (const to of neighbours) ring(context, to, 4.5, ink.line, 1.4);
  ring(context, at, 9, ink.paper, 5);
  ring(context, at, 9, ink.ring, 2.5);
}

const font = (px: number): string => `600 ${px}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;

/** The selected node's id beside its ring: to the right of it, to the left where the right is too narrow. */
function drawName(context: CanvasRenderingContext2D, size: Size, theme: Theme, [x, y]: Point, name: string): Rect {
  const text = name.length > 40 ? `${name.slice(0, 39)}…` : name;
  context.font = font(13);
  const width = widthOf(context, text) + 10;
  const left = x + 14 + width > size.width ? x - 14 - width : x + 14;
  const box: Rect = [left, y - 11, left + width, y + 11];
  const ink = INK[theme];
  context.fillStyle = ink.ring;
  context.beginPath();
  context.roundRect(box[0], box[1], width, 22, 6);
  context.fill();
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillStyle = ink.paper;
  context.fillText(text, left + 5, y + 0.5);
  return box;
}

/** Names of categories; one that would be cut off, or lie under a panel or another name, is left out. */
function drawLabels(context: CanvasRenderingContext2D, size: Size, camera: Camera, theme: Theme, marks: Marks, taken: Rect[]): void {
  const ink = INK[theme];
  const hotFirst = marks.hot === null ? marks.anchors : [...marks.anchors].sort((a, b) => Number(b.category === marks.hot) - Number(a.category === marks.hot));
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  let drawn = 0;
  for (const anchor of hotFirst) {
    if (drawn >= MOST_LABELS) break;
    if (!marks.labelled(anchor.category) || (marks.hot !== null && anchor.category !== marks.hot)) continue;
    const [x, y] = toScreen(camera, size, anchor.x, anchor.y);
    const name = marks.names(anchor.category);
    context.font = font(anchor.category === marks.hot ? 14 : 12);
    const half = widthOf(context, name) / 2 + 5;
    const box: Rect = [x - half, y - 10, x + half, y + 10];
    if (box[0] < 0 || box[1] < 0 || box[2] > size.width || box[3] > size.height) continue;
    if (taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) continue;
    taken.push(box);
    drawn += 1;
    context.strokeStyle = ink.halo;
    context.lineWidth = 4;
    context.strokeText(name, x, y);
    context.fillStyle = ink.text;
    context.fillText(name, x, y);
  }
}

const widths = new Map<string, number>();

function widthOf(context: CanvasRenderingContext2D, text: string): number {
  const key = context.font + text;
  let width = widths.get(key);
  if (width === undefined) widths.set(key, (width = context.measureText(text).width));
  return width;
}

function drawFresh(context: CanvasRenderingContext2D, theme: Theme, marks: Marks, place: (point: Point) => Point): void {
  const { at, arrows, abstained } = marks.fresh!;
  const ink = INK[theme];
  const [x, landed] = place(at);
  const y = landed - (1 - marks.landing) * 90;
  const colour = abstained ? ink.warn : ink.accent;
  for (const arrow of arrows) {
    const [tx, ty] = place(arrow.to);
    const [ex, ey] = [x + (tx - x) * marks.reach, y + (ty - y) * marks.reach];
    context.strokeStyle = arrow.kind === "link" ? ink.link : ink.line;
    context.lineWidth = arrow.kind === "link" ? 2 : 1.4;
    context.setLineDash(arrow.kind === "link" ? [6, 4] : []);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(ex, ey);
    context.stroke();
    context.setLineDash([]);
    if (marks.reach > 0.98) ring(context, [tx, ty], 5.5, arrow.kind === "link" ? ink.link : ink.line, 1.8);
  }
  if (marks.pulse > 0 && marks.pulse < 1) {
    context.globalAlpha = 1 - marks.pulse;
    ring(context, [x, y], 12 + 26 * marks.pulse, colour, 3);
    context.globalAlpha = 1;
  }
  context.globalAlpha = Math.min(1, marks.landing * 2);
  star(context, x, y, 12, ink.paper);
  star(context, x, y, 9.5, colour);
  context.globalAlpha = 1;
}

function ring(context: CanvasRenderingContext2D, [x, y]: Point, radius: number, colour: string, width: number): void {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.stroke();
}

/** A four-pointed star: no class has this shape. */
function star(context: CanvasRenderingContext2D, x: number, y: number, radius: number, colour: string): void {
  context.fillStyle = colour;
  context.beginPath();
  for (let i = 0; i < 8; i++) {
    const r = i % 2 ? radius * 0.46 : radius * 1.25;
    const angle = (i * Math.PI) / 4 - Math.PI / 2;
    context.lineTo(x + r * Math.cos(angle), y + r * Math.sin(angle));
  }
  context.closePath();
  context.fill();
}

function drawCrosshair(context: CanvasRenderingContext2D, [x, y]: Point, colour: string): void {
  context.strokeStyle = colour;
  context.globalAlpha = 0.7;
  context.lineWidth = 1.5;
  context.beginPath();
  for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]] as const) {
    context.moveTo(x + dx * 5, y + dy * 5);
    context.lineTo(x + dx * 14, y + dy * 14);
  }
  context.stroke();
  context.globalAlpha = 1;
}
