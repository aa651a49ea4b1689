import type { Box } from "./camera";

/** Points sorted into square cells, for "which node is under the pointer". Built by one counting sort. */
export class Grid {
  private readonly starts: Uint32Array;
  private readonly order: Uint32Array;
  private readonly columns: number;
  private readonly rows: number;
  private readonly cell: number;

  constructor(
    private readonly x: Float32Array,
    private readonly y: Float32Array,
    private readonly box: Box,
  ) {
    const n = x.length;
    const width = Math.max(box.x1 - box.x0, 1e-9);
    const height = Math.max(box.y1 - box.y0, 1e-9);
    this.cell = Math.sqrt((width * height) / Math.max(1, n / 3));
    // A long thin cloud must not ask for millions of cells.
    this.cell = Math.max(this.cell, width / 1024, height / 1024);
    this.columns = Math.max(1, Math.ceil(width / this.cell));
    this.rows = Math.max(1, Math.ceil(height / this.cell));
    const cells = this.columns * this.rows;
    this.starts = new Uint32Array(cells + 1);
    const cellOf = new Int32Array(n);
    for (let i = 0; i < n; i++) {
      const c = Number.isFinite(x[i]) && Number.isFinite(y[i]) ? this.row(y[i]!) * this.columns + this.column(x[i]!) : -1;
      cellOf[i] = c;
      if (c >= 0) this.starts[c + 1] = this.starts[c + 1]! + 1;
    }
    for (let c = 0; c < cells; c++) this.starts[c + 1] = this.starts[c + 1]! + this.starts[c]!;
    this.order = new Uint32Array(this.starts[cells]!);
    const next = this.starts.slice(0, cells);
    for (let i = 0; i < n; i++) {
      const c = cellOf[i]!;
      if (c < 0) continue;
      this.order[next[c]!] = i;
      next[c] = next[c]! + 1;
    }
  }

  /** The accepted point nearest to (px, py) within `radius`, or -1. Points outside the box sit in border cells. */
  nearest(px: number, py: number, radius: number, accept: (index: number) => boolean): number {
    let best = -1;
    let least = radius * radius;
    const [c0, c1] = [this.column(px - radius), this.column(px + radius)];
    const [r0, r1] = [this.row(py - radius), this.row(py + radius)];
    for (let r = r0; r <= r1; r++) {
      const from = this.starts[r * this.columns + c0]!;
      const to = this.starts[r * this.columns + c1 + 1]!; // cells of a row lie side by side
      for (let k = from; k < to; k++) {
        const i = this.order[k]!;
        const away = (this.x[i]! - px) ** 2 + (this.y[i]! - py) ** 2;
        if (away <= least && accept(i)) {
          least = away;
          best = i;
        }
      }
    }
    return best;
  }

  private column(x: number): number {
    return Math.min(this.columns - 1, Math.max(0, Math.floor((x - this.box.x0) / this.cell)));
  }

  private row(y: number): number {
    return Math.min(this.rows - 1, Math.max(0, Math.floor((y - this.box.y0) / this.cell)));
  }
}
