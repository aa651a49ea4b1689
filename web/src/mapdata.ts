import type { MapData } from "./types";

/** Thrown when the bytes of /v1/map are not what the format promises. */
export class MapFormatError extends Error {}

/**
 * Read the answer of /v1/map: uint32 header length, JSON header, then x, y (float32), class, cluster (int16).
 * The arrays are views of the buffer, so 100,000 nodes cost no copy.
 */
export function decodeMap(buffer: ArrayBuffer): MapData {
  if (buffer.byteLength < 4) throw new MapFormatError(`the map is ${buffer.byteLength} bytes long, expected a header`);
  const length = new DataView(buffer).getUint32(0, true);
  if (4 + length > buffer.byteLength) throw new MapFormatError("the map's header is longer than the whole answer");
  const header = parseHeader(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const start = 4 + length + ((4 - (length % 4)) % 4);
  const expected = start + 12 * header.count;
  if (buffer.byteLength < expected)
    throw new MapFormatError(`the map has ${buffer.byteLength} bytes, expected ${expected} for ${header.count} nodes`);
  const n = header.count;
  return {
    ...header,
    x: new Float32Array(buffer, start, n),
    y: new Float32Array(buffer, start + 4 * n, n),
    classOf: new Int16Array(buffer, start + 8 * n, n),
    clusterOf: new Int16Array(buffer, start + 10 * n, n),
  };
}

function parseHeader(text: string): { count: number; classes: string[]; clusters: number; version: string } {
  let raw: Record<string, unknown>;
  try {
    raw = JSON.parse(text) as Record<string, unknown>;
  } catch {
    throw new MapFormatError("the map's header is not JSON");
  }
  const count = Number(raw.count);
  if (!Number.isInteger(count) || count < 0) throw new MapFormatError(`the map's count is ${String(raw.count)}`);
  const classes = Array.isArray(raw.classes) ? raw.classes.map(String) : [];
  return { count, classes, clusters: Number(raw.clusters ?? 0) || 0, version: String(raw.version ?? "") };
}

/** How many nodes each category holds; slot 0 counts the nodes that have none. */
export function countCategories(categoryOf: Int16Array, categories: number): Uint32Array {
  const counts = new Uint32Array(categories + 1);
  for (const category of categoryOf) {
    const slot = category >= 0 && category < categories ? category + 1 : 0;
    counts[slot] = counts[slot]! + 1;
  }
  return counts;
}

/** The k nodes nearest to node `index` on the picture. One pass: it is done once a click. */
export function nearestOnMap(data: MapData, index: number, k: number): number[] {
  const [x, y] = [data.x[index]!, data.y[index]!];
  const best: { i: number; d: number }[] = [];
  for (let i = 0; i < data.count; i++) {
    const d = (data.x[i]! - x) ** 2 + (data.y[i]! - y) ** 2;
    if (i === index || !(d < (best[k - 1]?.d ?? Infinity))) continue;
    const at = best.findIndex((other) => d < other.d);
    best.splice(at < 0 ? best.length : at, 0, { i, d });
    best.length = Math.min(best.length, k);
  }
  return best.map(({ i }) => i);
}
