import type { Box } from "./map/camera";
import type { ColourBy } from "./types";

/** What a shared link carries. Everything is optional. */
export interface Shared {
  colour?: ColourBy;
  view?: Box;
  node?: string;
  typed?: Record<string, string>;
  asked?: boolean; // the typed node had been sent: send it again on opening
}

const LONGEST = 12_000; // longer links are cut by some servers and mail programs

export function readHash(hash: string): Shared {
  const params = new URLSearchParams(hash.replace(/^#/, ""));
  const shared: Shared = {};
  const colour = params.get("colour");
  if (colour === "class" || colour === "cluster") shared.colour = colour;
  const view = params.get("view")?.split(",").map(Number);
  if (view?.length === 4 && view.every(Number.isFinite)) {
    const [x0, y0, x1, y1] = view as [number, number, number, number];
    if (x1 > x0 && y1 > y0) shared.view = { x0, y0, x1, y1 };
  }
  const node = params.get("node");
  if (node) shared.node = node;
  const typed: Record<string, string> = {};
  for (const [key, value] of params) if (key.startsWith("f.") && value) typed[key.slice(2)] = value;
  if (Object.keys(typed).length) shared.typed = typed;
  if (params.get("asked") === "1") shared.asked = true;
  return shared;
}

export function writeHash(shared: Shared): string {
  const params = new URLSearchParams();
  if (shared.colour) params.set("colour", shared.colour);
  if (shared.view) {
    const { x0, y0, x1, y1 } = shared.view;
    const digits = Math.max(0, Math.min(12, 4 - Math.floor(Math.log10(Math.max(x1 - x0, 1e-9)))));
    params.set("view", [x0, y0, x1, y1].map((v) => String(Number(v.toFixed(digits)))).join(","));
  }
  if (shared.node) params.set("node", shared.node);
  const bare = params.toString();
  for (const [name, value] of Object.entries(shared.typed ?? {})) if (value) params.set(`f.${name}`, value);
  if (shared.asked) params.set("asked", "1");
  const full = params.toString();
  const text = full.length > LONGEST ? bare : full;
  return text ? `#${text.replaceAll("%2C", ",")}` : "";
}
