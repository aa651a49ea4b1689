import type { Scene } from "./scene";

const CLICK_PX = 5;
const STEP_PX = 70;

/** Mouse, touch and keys on the map. Returns what undoes it. */
export function listen(surface: HTMLElement, scene: Scene, onEscape: () => void): () => void {
  const stop = new AbortController();
  const options = { signal: stop.signal };
  pointers(surface, scene, options);
  surface.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 240 : 1;
      const [x, y] = at(surface, event);
      scene.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0018)), x, y);
    },
    { passive: false, ...options },
  );
  surface.addEventListener("dblclick", (event) => scene.zoom(event.shiftKey ? 0.5 : 2, ...at(surface, event)), options);
  surface.addEventListener("keydown", (event) => keys(event, scene, onEscape), options);
  const crosshair = (on: boolean): void => {
    scene.marks.crosshair = on;
    scene.invalidate();
  };
  surface.addEventListener("focus", () => crosshair(surface.matches(":focus-visible")), options);
  surface.addEventListener("blur", () => crosshair(false), options);
  return () => stop.abort();
}

function at(surface: HTMLElement, event: MouseEvent): [number, number] {
  const box = surface.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function pointers(surface: HTMLElement, scene: Scene, options: { signal: AbortSignal }): void {
  const down = new Map<number, [number, number]>();
  let travelled = 0;
  const spread = (): { gap: number; x: number; y: number } => {
    const [a, b] = [...down.values()] as [[number, number], [number, number]];
    return { gap: Math.hypot(a[0] - b[0], a[1] - b[1]), x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2 };
  };
  surface.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    surface.setPointerCapture(event.pointerId);
    if (!down.size) travelled = 0;
    down.set(event.pointerId, at(surface, event));
  }, options);
  surface.addEventListener("pointermove", (event) => {
    const [x, y] = at(surface, event);
    const last = down.get(event.pointerId);
    if (!last) {
      if (event.pointerType !== "touch") scene.hoverAt(x, y);
      return;
    }
    const before = down.size === 2 ? spread() : null;
    travelled += Math.hypot(x - last[0], y - last[1]);
    down.set(event.pointerId, [x, y]);
    if (before) {
      const after = spread();
      scene.pan(after.x - before.x, after.y - before.y);
      if (before.gap > 0) scene.zoom(after.gap / before.gap, after.x, after.y);
    } else if (travelled > CLICK_PX) {
      surface.dataset.dragging = "";
      scene.hoverAt(-1e6, -1e6);
      scene.pan(x - last[0], y - last[1]);
    }
  }, options);
  const up = (event: PointerEvent): void => {
    const was = down.delete(event.pointerId);
    delete surface.dataset.dragging;
    if (was && !down.size && travelled <= CLICK_PX && event.type === "pointerup")
      scene.pick(...at(surface, event), event.pointerType === "touch" ? 22 : undefined);
  };
  surface.addEventListener("pointerup", up, options);
  surface.addEventListener("pointercancel", up, options);
  surface.addEventListener("pointerleave", () => scene.hoverAt(-1e6, -1e6), options);
}

function keys(event: KeyboardEvent, scene: Scene, onEscape: () => void): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = event.shiftKey ? STEP_PX * 3 : STEP_PX;
  const actions: Record<string, () => void> = {
    ArrowLeft: () => scene.pan(step, 0),
    ArrowRight: () => scene.pan(-step, 0),
    ArrowUp: () => scene.pan(0, step),
    ArrowDown: () => scene.pan(0, -step),
    "+": () => scene.zoom(1.4),
    "=": () => scene.zoom(1.4),
    "-": () => scene.zoom(1 / 1.4),
    _: () => scene.zoom(1 / 1.4),
    "0": () => scene.goHome(),
    Home: () => scene.goHome(),
    Enter: () => scene.pick(...scene.middle, 120),
    Escape: onEscape,
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}
