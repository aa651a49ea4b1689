import type { Theme } from "../palette";
import type { ColourBy, MapData } from "../types";
import { between, type Box, type Camera, fit, homeBox, type Insets, NO_INSETS, pan, type Size, toData, toScreen, viewBox, zoomAt } from "./camera";
import { Budget } from "./budget";
import { Grid } from "./grid";
import { drawMarks, type Marks, type Rect } from "./overlay";
import { Renderer, type Style } from "./renderer";

export interface SceneEvents {
  hover: (index: number, x: number, y: number) => void; // -1: nothing under the pointer
  pick: (index: number) => void; // -1: empty ground
  moved: (box: Box) => void;
  covered: () => readonly Rect[]; // where panels lie over the map
  drawn: () => void; // the first frame with nodes is on its way to the screen
}

const FLIGHT_MS = 520;
const HIT_PX = 11;
const ease = (t: number): number => (t < 0.5 ? 4 * t * t * t : 1 - (2 - 2 * t) ** 3 / 2);
const calm = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** The living map: a camera, two canvases, and frames that are drawn only when something changed. */
export class Scene {
  camera: Camera = { x: 0, y: 0, scale: 1 };
  size: Size = { width: 1, height: 1 };
  insets: Insets = NO_INSETS;
  marks: Marks = { anchors: [], names: String, labelled: () => true, hot: null, hover: null, selected: null, neighbours: [], name: "", fresh: null, landing: 1, reach: 1, pulse: 0, crosshair: false };
  private readonly renderer: Renderer;
  private readonly context: CanvasRenderingContext2D;
  private data: MapData | null = null;
  private grid: Grid | null = null;
  private home: Box = { x0: -1, y0: -1, x1: 1, y1: 1 };
  private styles: Style[] = [];
  private by: ColourBy = "class";
  private theme: Theme = "light";
  private ratio = 1;
  private frame = 0;
  private drawn = 0; // nodes of the present picture that are on the canvas
  private budget = new Budget(0, false);
  private busy = false; // nodes were drawn in the frame before
  private flight: { from: Camera; to: Camera; start: number; done?: () => void } | null = null;
  private landing: number | null = null;
  private wantedView: Box | null = null;
  private shown = false;

  constructor(
    private readonly nodes: HTMLCanvasElement,
    private readonly top: HTMLCanvasElement,
    private readonly events: SceneEvents,
  ) {
    this.renderer = new Renderer(nodes);
    this.context = top.getContext("2d")!;
    nodes.addEventListener("webglcontextlost", (event) => event.preventDefault());
    nodes.addEventListener("webglcontextrestored", () => {
      this.renderer.prepare();
      if (this.data) this.renderer.setNodes(this.data);
      this.renderer.setStyles(this.styles);
      this.redraw();
    });
  }

  setData(data: MapData, view: Box | null): void {
    this.data = data;
    this.home = homeBox(data.x, data.y);
    this.grid = new Grid(data.x, data.y, this.home);
    this.renderer.setNodes(data);
    this.budget = new Budget(data.count, this.renderer.software);
    this.wantedView = view;
    this.settle();
  }

  get homeView(): Box {
    return this.home;
  }

  /** The middle of what no panel covers, in CSS pixels. */
  get middle(): [number, number] {
    const { left, right, top, bottom } = this.insets;
    return [(left + this.size.width - right) / 2, (top + this.size.height - bottom) / 2];
  }

  setStyles(styles: Style[], by: ColourBy, theme: Theme): void {
    this.styles = styles;
    this.by = by;
    this.theme = theme;
    this.renderer.setStyles(styles);
    this.redraw();
  }

  resize(width: number, height: number, ratio: number): void {
    if (width < 1 || height < 1) return;
    const before = viewBox(this.camera, this.size);
    const first = this.size.width <= 1;
    this.size = { width, height };
    this.ratio = Math.min(ratio, 2);
    for (const canvas of [this.nodes, this.top]) {
      canvas.width = Math.round(width * this.ratio);
      canvas.height = Math.round(height * this.ratio);
    }
    if (first) this.settle();
    else this.camera = { ...fit(before, this.size), x: this.camera.x, y: this.camera.y };
    this.redraw();
  }

  place(index: number): [number, number] | null {
    const data = this.data;
    if (!data || index < 0 || index >= data.count) return null;
    const [x, y] = [data.x[index]!, data.y[index]!];
    return Number.isFinite(x) && Number.isFinite(y) ? [x, y] : null;
  }

  screen(point: [number, number]): [number, number] {
    return toScreen(this.camera, this.size, point[0], point[1]);
  }

  pan(dx: number, dy: number): void {
    this.flight = null;
    this.move(pan(this.camera, dx, dy));
  }

  zoom(factor: number, px = this.middle[0], py = this.middle[1]): void {
    this.flight = null;
    this.move(zoomAt(this.camera, this.size, px, py, factor, this.limits()));
  }

  goHome(): void {
    this.flyTo(fit(this.home, this.size, this.insets));
  }

  showBox(box: Box, done?: () => void): void {
    const camera = fit(box, this.size, this.insets);
    const [least, most] = this.limits();
    this.flyTo({ ...camera, scale: Math.min(most, Math.max(least, camera.scale)) }, done);
  }

  setView(box: Box): void {
    this.flight = null;
    this.move(fit(box, this.size));
  }

  /** Bring a point into view, zooming in only when the map is far away. */
  showPoint([x, y]: [number, number], zoom = 6): void {
    const home = fit(this.home, this.size, this.insets).scale;
    const scale = Math.max(this.camera.scale, home * zoom);
    this.flyTo({ x: x - (this.insets.left - this.insets.right) / 2 / scale, y: y + (this.insets.top - this.insets.bottom) / 2 / scale, scale });
  }

  /** Let the new node fall onto the map, its lines grow, and a ring spread once. */
  land(): void {
    if (calm()) {
      Object.assign(this.marks, { landing: 1, reach: 1, pulse: 0 });
      this.landing = null;
    } else {
      Object.assign(this.marks, { landing: 0, reach: 0, pulse: 0 });
      this.landing = performance.now();
    }
    this.invalidate();
  }

  pickAt(px: number, py: number, radius = HIT_PX): number {
    if (!this.grid || !this.data) return -1;
    const [x, y] = toData(this.camera, this.size, px, py);
    const categoryOf = this.by === "class" ? this.data.classOf : this.data.clusterOf;
    const visible = (i: number): boolean => (this.styles[categoryOf[i]! + 1]?.alpha ?? 1) > 0;
    return this.grid.nearest(x, y, radius / this.camera.scale, visible);
  }

  hoverAt(px: number, py: number): void {
    const index = this.pickAt(px, py);
    this.setHover(index);
    this.events.hover(index, px, py);
  }

  setHover(index: number): void {
    const at = this.place(index);
    if (at === null && this.marks.hover === null) return;
    this.marks.hover = at;
    this.invalidate();
  }

  pick(px: number, py: number, radius = HIT_PX): void {
    this.events.pick(this.pickAt(px, py, radius));
  }

  /** The nodes look different now: begin the picture anew. */
  redraw(): void {
    this.drawn = 0;
    this.invalidate();
  }

  /** Only what lies over the nodes changed. */
  invalidate(): void {
    if (!this.frame) this.frame = requestAnimationFrame((now) => this.render(now));
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    this.frame = -1;
  }

  private settle(): void {
    if (!this.data || this.size.width <= 1) return;
    this.camera = this.wantedView ? fit(this.wantedView, this.size) : fit(this.home, this.size, this.insets);
    this.wantedView = null;
    this.redraw();
  }

  private limits(): [number, number] {
    const home = fit(this.home, this.size).scale;
    return [home * 0.25, home * 4000];
  }

  private flyTo(to: Camera, done?: () => void): void {
    if (calm()) {
      this.move(to);
      done?.();
      return;
    }
    this.flight = { from: this.camera, to, start: performance.now(), done };
    this.invalidate();
  }

  private move(camera: Camera): void {
    this.camera = camera;
    this.events.moved(viewBox(camera, this.size));
    this.redraw();
  }

  /** Larger dots when few nodes are in sight, small ones when 100,000 are. */
  private dot(): number {
    const n = this.data?.count ?? 1;
    const base = Math.min(9, Math.max(2.6, 60 / n ** 0.29));
    const zoom = this.camera.scale / fit(this.home, this.size, this.insets).scale;
    const room = Math.min(1, Math.max(0.7, this.size.width / 800)); // a phone shows the same nodes on less ground
    return Math.max(2, Math.min(13, room * base * Math.max(1, zoom) ** 0.32));
  }

  private render(now: number): void {
    this.frame = 0;
    this.stepFlight(now);
    this.stepLanding(now);
    this.drawNodes(now);
    drawMarks(this.context, this.size, this.ratio, this.camera, this.theme, this.marks, this.middle, this.events.covered());
    if (this.data && this.styles.length && !this.shown) {
      this.shown = true;
      requestAnimationFrame(() => this.events.drawn());
    }
  }

  private drawNodes(now: number): void {
    const all = this.renderer.count;
    if (this.drawn >= all && all > 0) {
      this.busy = false;
      return;
    }
    this.budget.frame(now, !this.busy);
    this.busy = true;
    const to = Math.min(all, this.drawn + this.budget.nodes);
    this.renderer.draw(this.camera, this.size, this.ratio, this.by, this.dot(), this.drawn, to);
    this.drawn = to;
    if (to < all) this.invalidate();
  }

  private stepFlight(now: number): void {
    const flight = this.flight;
    if (!flight) return;
    const t = Math.min(1, Math.max(0, (now - flight.start) / FLIGHT_MS));
    this.camera = between(flight.from, flight.to, ease(t));
    this.drawn = 0;
    if (t < 1) this.invalidate();
    else {
      this.flight = null;
      this.events.moved(viewBox(this.camera, this.size));
      flight.done?.();
    }
  }

  private stepLanding(now: number): void {
    if (this.landing === null) return;
    const ms = now - this.landing;
    const part = (from: number, length: number): number => Math.min(1, Math.max(0, (ms - from) / length));
    this.marks.landing = 1 - (1 - part(120, 420)) ** 3;
    this.marks.reach = ease(part(480, 480));
    this.marks.pulse = part(520, 900);
    if (ms < 1500) this.invalidate();
    else this.landing = null;
  }
}
