import type { Box } from "./camera";

export interface Anchor {
  category: number;
  x: number;
  y: number;
  count: number;
}

const BINS = 40;
const MOST = 40; // categories that may have a name on the map

/** Where each of the largest categories is densest: the place for its name. */
export function densestPlaces(x: Float32Array, y: Float32Array, categoryOf: Int16Array, counts: Uint32Array, box: Box): Anchor[] {
  const largest = Array.from({ length: counts.length - 1 }, (_, i) => i)
    .filter((category) => counts[category + 1]! > 0)
    .sort((a, b) => counts[b + 1]! - counts[a + 1]!)
    .slice(0, MOST);
  const slotOf = new Int32Array(counts.length).fill(-1);
  largest.forEach((category, slot) => (slotOf[category] = slot));
  const tallies = new Uint32Array(largest.length * BINS * BINS);
  const bin = binner(box);
  for (let i = 0; i < x.length; i++) {
    const slot = categoryOf[i]! >= 0 ? slotOf[categoryOf[i]!]! : -1;
    const b = slot >= 0 ? bin(x[i]!, y[i]!) : -1;
    if (b >= 0) tallies[slot * BINS * BINS + b] = tallies[slot * BINS * BINS + b]! + 1;
  }
  const peaks = largest.map((_, slot) => peak(tallies.subarray(slot * BINS * BINS, (slot + 1) * BINS * BINS)));
  const sums = largest.map(() => ({ x: 0, y: 0, n: 0 }));
  for (let i = 0; i < x.length; i++) {
    const slot = categoryOf[i]! >= 0 ? slotOf[categoryOf[i]!]! : -1;
    if (slot < 0 || bin(x[i]!, y[i]!) !== peaks[slot]) continue;
    const sum = sums[slot]!;
    sum.x += x[i]!;
    sum.y += y[i]!;
    sum.n += 1;
  }
  return largest.flatMap((category, slot) => {
    const sum = sums[slot]!;
    return sum.n ? [{ category, x: sum.x / sum.n, y: sum.y / sum.n, count: counts[category + 1]! }] : [];
  });
}

function binner(box: Box): (x: number, y: number) => number {
  const sx = BINS / Math.max(box.x1 - box.x0, 1e-9);
  const sy = BINS / Math.max(box.y1 - box.y0, 1e-9);
  return (x, y) => {
    const column = Math.floor((x - box.x0) * sx);
    const row = Math.floor((y - box.y0) * sy);
    return column >= 0 && column < BINS && row >= 0 && row < BINS ? row * BINS + column : -1;
  };
}

/** The bin whose neighbourhood holds most: one crowded bin alone may be an accident. */
function peak(tally: Uint32Array): number {
  let best = 0;
  let most = -1;
  for (let row = 0; row < BINS; row++)
    for (let column = 0; column < BINS; column++) {
      let sum = 3 * tally[row * BINS + column]!;
      if (row > 0) sum += tally[(row - 1) * BINS + column]!;
      if (row < BINS - 1) sum += tally[(row + 1) * BINS + column]!;
      if (column > 0) sum += tally[row * BINS + column - 1]!;
      if (column < BINS - 1) sum += tally[row * BINS + column + 1]!;
      if (tally[row * BINS + column]! > 0 && sum > most) {
        most = sum;
        best = row * BINS + column;
      }
    }
  return best;
}
