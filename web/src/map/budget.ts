const AIM_MS = 33;
const SLOW_MS = 42;
const FAST_MS = 22;
const LEAST = 4_000;
const SOFTWARE = 12_000;

/**
 * How many nodes one frame may draw. A graphics card draws all of them; where the processor has to, the map is drawn
 * in parts over several frames, and while it moves only the first part is seen: it must follow the hand.
 */
export class Budget {
  nodes: number;
  private last = 0;

  constructor(
    private readonly all: number,
    software: boolean,
  ) {
    this.nodes = software ? Math.min(all, SOFTWARE) : all;
  }

  /** Tell the time of a frame in which nodes were drawn; `rested` when none was drawn in the frame before. */
  frame(now: number, rested: boolean): void {
    const took = now - this.last;
    this.last = now;
    if (rested) return;
    if (took > SLOW_MS) this.nodes = Math.max(Math.min(LEAST, this.all), Math.round(this.nodes * Math.max(0.4, AIM_MS / took)));
    else if (took < FAST_MS) this.nodes = Math.min(this.all, Math.round(this.nodes * 1.1));
  }
}
