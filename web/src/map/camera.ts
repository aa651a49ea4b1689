/** Where the map looks: the centre in data units and CSS pixels per unit. y grows upwards, as in a plot. */
export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export interface Size {
  width: number;
  height: number;
}

export interface Box {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

export interface Insets {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

export const NO_INSETS: Insets = { left: 0, right: 0, top: 0, bottom: 0 };

export function toScreen(camera: Camera, size: Size, x: number, y: number): [number, number] {
  return [size.width / 2 + (x - camera.x) * camera.scale, size.height / 2 - (y - camera.y) * camera.scale];
}

export function toData(camera: Camera, size: Size, px: number, py: number): [number, number] {
  return [camera.x + (px - size.width / 2) / camera.scale, camera.y - (py - size.height / 2) / camera.scale];
}

/** The camera that shows `box` whole inside the insets (panels that lie over the map). */
export function fit(box: Box, size: Size, insets: Insets = NO_INSETS): Camera {
  const width = Math.max(40, size.width - insets.left - insets.right);
  const height = Math.max(40, size.height - insets.top - insets.bottom);
  const scale = Math.min(width / Math.max(box.x1 - box.x0, 1e-9), height / Math.max(box.y1 - box.y0, 1e-9));
  return {
    x: (box.x0 + box.x1) / 2 - (insets.left - insets.right) / 2 / scale,
    y: (box.y0 + box.y1) / 2 + (insets.top - insets.bottom) / 2 / scale,
    scale,
  };
}

export function viewBox(camera: Camera, size: Size): Box {
  const [x0, y0] = toData(camera, size, 0, size.height);
  const [x1, y1] = toData(camera, size, size.width, 0);
  return { x0, y0, x1, y1 };
}

/** Zoom by `factor` with the data under (px, py) staying where it is. */
export function zoomAt(camera: Camera, size: Size, px: number, py: number, factor: number, limits: [number, number]): Camera {
  const scale = Math.min(limits[1], Math.max(limits[0], camera.scale * factor));
  const [x, y] = toData(camera, size, px, py);
  return { x: x - (px - size.width / 2) / scale, y: y + (py - size.height / 2) / scale, scale };
}

export function pan(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x - dx / camera.scale, y: camera.y + dy / camera.scale };
}

/** The way from a to b at t in [0, 1]; the scale moves in even ratios, so near and far flights feel alike. */
export function between(a: Camera, b: Camera, t: number): Camera {
  const scale = a.scale * (b.scale / a.scale) ** t;
  // With the scale changing, the centre has to move in proportion to 1 / scale for a straight flight.
  const span = 1 / b.scale - 1 / a.scale;
  const s = Math.abs(span) < 1e-12 ? t : (1 / scale - 1 / a.scale) / span;
  return { x: a.x + (b.x - a.x) * s, y: a.y + (b.y - a.y) * s, scale };
}

export function boxOf(points: [number, number][]): Box {
  const xs = points.map((point) => point[0]);
  const ys = points.map((point) => point[1]);
  return { x0: Math.min(...xs), y0: Math.min(...ys), x1: Math.max(...xs), y1: Math.max(...ys) };
}

export function grow(box: Box, share: number, least: number): Box {
  const dx = Math.max((box.x1 - box.x0) * share, (least - (box.x1 - box.x0)) / 2);
  const dy = Math.max((box.y1 - box.y0) * share, (least - (box.y1 - box.y0)) / 2);
  return { x0: box.x0 - dx, y0: box.y0 - dy, x1: box.x1 + dx, y1: box.y1 + dy };
}

/** The first view: nearly all nodes, not stretched by a few far ones. */
export function homeBox(x: Float32Array, y: Float32Array): Box {
  const [x0, x1] = middle(x);
  const [y0, y1] = middle(y);
  const span = Math.max(x1 - x0, y1 - y0);
  return grow({ x0, y0, x1, y1 }, 0.06, span > 0 ? span * 0.02 : 1);
}

const SAMPLE = 20_000;
const TAIL = 0.003;

function middle(values: Float32Array): [number, number] {
  const step = Math.max(1, Math.floor(values.length / SAMPLE));
  const kept: number[] = [];
  for (let i = 0; i < values.length; i += step) if (Number.isFinite(values[i])) kept.push(values[i]!);
  if (!kept.length) return [0, 0];
  const sorted = Float64Array.from(kept).sort();
  const cut = Math.floor(sorted.length * TAIL);
  const [low, high] = [sorted[cut]!, sorted[sorted.length - 1 - cut]!];
  return high > low ? [low, high] : [sorted[0]!, sorted[sorted.length - 1]!];
}
