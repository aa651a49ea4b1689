import { batch, computed, effect, signal } from "@preact/signals";
import * as api from "./api";
import { ServiceError } from "./api";
import { type Errors, fieldOf, toRecord, type Values } from "./form";
import { readHash, type Shared, writeHash } from "./hash";
import type { Box } from "./map/camera";
import { countCategories, nearestOnMap } from "./mapdata";
import { look, type Look, ranks, type Theme } from "./palette";
import type { ColourBy, Info, MapData, NodeCard, NodeRef, Prediction } from "./types";

export interface Problem {
  title: string;
  text: string;
  status: number;
}

export interface Landed {
  prediction: Prediction;
  places: Map<string, number>; // index on the map of the nodes that the answer names
  run: number;
  ignored: number; // known neighbours that the model does not know
  quiet: boolean; // opened from a link that carries its own view
}

// What the service told
export const info = signal<Info | null>(null);
export const map = signal<MapData | null>(null);
export const failure = signal<Problem | null>(null);
export const loading = signal(true);
export const tokenAsked = signal<null | "first" | "wrong">(null);

// What the user looks at
const opened: Shared = readHash(location.hash);
export const colourBy = signal<ColourBy>(opened.colour ?? "class");
export const hidden = signal<ReadonlySet<number>>(new Set());
export const hot = signal<number | null>(null);
export const panel = signal<"new" | "node">(opened.node && !opened.typed ? "node" : "new");
export const view = signal<Box | null>(opened.view ?? null);
export const firstView = opened.view ?? null;
export const jump = signal<{ box?: Box; index?: number; run: number }>({ run: 0 });
export const said = signal(""); // the live region
export const toast = signal("");

export const card = signal<NodeCard | null>(null);
export const near = signal<NodeRef[] | null>(null);
export const pointed = signal<number | null>(null); // a node of the card's lists that the pointer or the focus is on
export const cardBusy = signal(false);
export const cardProblem = signal<Problem | null>(null);

export const typed = signal<Values>(opened.typed ?? {});
export const coverage = signal(0.9);
export const known = signal("");
export const fieldErrors = signal<Errors>({});
export const predicting = signal(false);
export const predictProblem = signal<Problem | null>(null);
export const landed = signal<Landed | null>(null);

// Light and dark
export type ThemeChoice = "auto" | Theme;
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
const systemTheme = signal<Theme>(darkSystem.matches ? "dark" : "light");
darkSystem.addEventListener("change", (event) => (systemTheme.value = event.matches ? "dark" : "light"));
export const themeChoice = signal<ThemeChoice>(readTheme());
export const theme = computed<Theme>(() => (themeChoice.value === "auto" ? systemTheme.value : themeChoice.value));

function readTheme(): ThemeChoice {
  try {
    const kept = localStorage.getItem("gsparc-theme");
    return kept === "light" || kept === "dark" ? kept : "auto";
  } catch {
    return "auto";
  }
}

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  try {
    if (themeChoice.value === "auto") localStorage.removeItem("gsparc-theme");
    else localStorage.setItem("gsparc-theme", themeChoice.value);
  } catch {
    // A browser that keeps nothing still shows the theme that was asked for.
  }
});

// Categories: classes or clusters, one of them at a time
export const categoryOf = computed(() => (colourBy.value === "class" ? map.value?.classOf : map.value?.clusterOf) ?? new Int16Array());
export const categories = computed(() => (colourBy.value === "class" ? (map.value?.classes.length ?? 0) : (map.value?.clusters ?? 0)));
export const counts = computed(() => countCategories(categoryOf.value, categories.value));
const rank = computed(() => ranks(counts.value));
const classRank = computed(() => ranks(countCategories(map.value?.classOf ?? new Int16Array(), map.value?.classes.length ?? 0)));

export const nameOf = (category: number): string =>
  category < 0 ? (colourBy.value === "class" ? "unlabelled" : "no cluster") : colourBy.value === "class" ? (map.value?.classes[category] ?? String(category)) : `cluster ${category}`;
export const lookOf = (category: number): Look => look(category < 0 ? -1 : (rank.value[category] ?? 0), theme.value);

/** The look of a class by name, also while the map is coloured by cluster. */
export function classLook(name: string | null): Look {
  const category = map.value?.classes.indexOf(String(name)) ?? -1;
  return look(category < 0 ? -1 : (classRank.value[category] ?? 0), theme.value);
}

// Loading
export async function load(): Promise<void> {
  loading.value = true;
  failure.value = null;
  try {
    const [about, nodes] = await Promise.all([api.getInfo(), api.getMap()]);
    batch(() => {
      if (!opened.colour && !nodes.classes.length && nodes.clusters) colourBy.value = "cluster";
      if (colourBy.value === "cluster" && !nodes.clusters) colourBy.value = "class";
      info.value = about;
      map.value = nodes;
      loading.value = false;
      tokenAsked.value = null;
    });
    document.title = `${about.name} · gsparc explorer`;
    said.value = `Map loaded: ${nodes.count.toLocaleString("en")} nodes.`;
    await Promise.all([opened.node ? openNode(opened.node, false) : null, opened.typed && opened.asked ? askPrediction(opened.view !== undefined) : null]);
  } catch (error) {
    loading.value = false;
    const found = problem(error, "The explorer could not load");
    if (!askToken(error)) failure.value = found;
  }
}

/** The service took another model into use: its map has other nodes, so the old indices mean nothing. */
async function refresh(): Promise<void> {
  const [about, nodes] = await Promise.all([api.getInfo(), api.getMap()]);
  batch(() => {
    info.value = about;
    map.value = nodes;
    hidden.value = new Set();
    closeNode();
  });
  toast.value = "The service has a new model; its map was loaded.";
}

export function giveToken(value: string): void {
  api.token.set(value.trim());
  const again = map.value ? null : load;
  tokenAsked.value = null;
  if (again) void again();
  else toast.value = "Token kept for this tab. Try again now.";
}

function askToken(error: unknown): boolean {
  if (!(error instanceof ServiceError) || error.status !== 401) return false;
  tokenAsked.value = api.token.get() ? "wrong" : "first";
  return true;
}

export function problem(error: unknown, title: string): Problem {
  if (!(error instanceof ServiceError)) return { title, text: error instanceof Error ? sentence(error.message) : String(error), status: -1 };
  const { status, message } = error;
  if (status === 0) return { title: "No connection to the service", text: message, status };
  if (status === 401) return { title: "A token is needed", text: "Give the service’s access token to go on.", status };
  if (status === 429 || status === 503) {
    const wait = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : " Try again in a moment.";
    return { title: status === 429 ? "The service is busy" : "The service is not ready", text: message + wait, status };
  }
  if (status === 404) return { title: "Not found", text: message, status };
  if (status === 413) return { title: "Too much at once", text: message, status };
  if (status >= 500) return { title: "The service failed", text: message, status };
  return { title, text: message, status };
}

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

// One node
let cardRequest: AbortController | null = null;

export async function openNode(which: string | number, move = true): Promise<void> {
  cardRequest?.abort();
  const mine = (cardRequest = new AbortController());
  batch(() => {
    cardBusy.value = true;
    cardProblem.value = null;
    panel.value = "node";
  });
  try {
    const found = typeof which === "number" ? await api.getNodeAt(which, mine.signal) : await api.getNode(which, mine.signal);
    batch(() => {
      card.value = found;
      cardBusy.value = false;
      pointed.value = null;
      near.value = found.near ?? null;
      if (move) jump.value = { index: found.index, run: jump.value.run + 1 };
    });
    said.value = `Node ${found.id}. ${found.class ? `Class ${found.class}. ` : ""}${found.degree === undefined ? "" : `${found.degree.toLocaleString("en")} known neighbours.`}`;
    if (!found.near && map.value) near.value = await nearOnMap(map.value, found.index, mine.signal);
  } catch (error) {
    if (mine.signal.aborted) return;
    askToken(error);
    batch(() => {
      cardBusy.value = false;
      card.value = null;
      cardProblem.value = missing(error)
        ? { title: "Not found", text: `The model knows no node “${which}”. The search above finds ids by any part of them.`, status: 404 }
        : problem(error, "This node could not be shown");
    });
    said.value = `${cardProblem.value?.title}. ${cardProblem.value?.text}`;
  }
}

const missing = (error: unknown): boolean => error instanceof ServiceError && error.status === 404;

/** Where a card does not name the nearest nodes, the picture can. */
async function nearOnMap(data: MapData, index: number, signal: AbortSignal): Promise<NodeCard[]> {
  const cards = await Promise.all(nearestOnMap(data, index, 5).map((i) => api.getNodeAt(i, signal).catch(() => null)));
  return cards.filter((found) => found !== null);
}

export function closeNode(): void {
  cardRequest?.abort();
  batch(() => {
    card.value = null;
    cardBusy.value = false;
    cardProblem.value = null;
    pointed.value = null;
  });
}

// A new node
let predictRequest: AbortController | null = null;

export async function askPrediction(quiet = false): Promise<void> {
  const fields = info.value?.form ?? [];
  const { record, errors } = toRecord(fields, typed.value);
  fieldErrors.value = errors;
  predictProblem.value = null;
  if (Object.keys(errors).length) {
    said.value = `${Object.keys(errors).length} field needs attention: ${Object.values(errors)[0]}`;
    return;
  }
  if (!Object.keys(record).length) {
    predictProblem.value = { title: "Nothing typed yet", text: "Fill in at least one field, or start from the example.", status: -1 };
    said.value = predictProblem.value.text;
    return;
  }
  predictRequest?.abort();
  const mine = (predictRequest = new AbortController());
  predicting.value = true;
  try {
    const ids = known.value.split(/[\s,;]+/).filter(Boolean);
    const { prediction, model, ignored } = await api.predict({ record, coverage: coverage.value, known: ids }, mine.signal);
    if (model && map.value?.version && model !== map.value.version) await refresh();
    const places = await findPlaces(prediction, mine.signal);
    batch(() => {
      predicting.value = false;
      landed.value = { prediction, places, ignored, run: (landed.value?.run ?? 0) + 1, quiet };
      closeNode();
      panel.value = "new";
    });
    said.value = summary(prediction);
  } catch (error) {
    if (mine.signal.aborted) return;
    predicting.value = false;
    askToken(error);
    showPredictError(error);
  }
}

function showPredictError(error: unknown): void {
  const fields = info.value?.form ?? [];
  if (error instanceof ServiceError && (error.status === 422 || error.status === 400)) {
    const field = fieldOf(fields, error.message, error.field);
    if (field) {
      fieldErrors.value = { [field]: error.message };
      said.value = error.message;
      return;
    }
  }
  predictProblem.value = problem(error, "No prediction");
  said.value = `${predictProblem.value.title}. ${predictProblem.value.text}`;
}

/** The map's index of every node that a prediction names; asks for those that the answer does not carry. */
async function findPlaces(prediction: Prediction, signal: AbortSignal): Promise<Map<string, number>> {
  const places = new Map<string, number>();
  const named = [...(prediction.near ?? []), ...(prediction.links ?? [])];
  await Promise.all(
    [...new Map(named.map((entry) => [String(entry.id), entry])).values()].map(async (entry) => {
      if (typeof entry.index === "number") places.set(String(entry.id), entry.index);
      else {
        // A line that cannot be drawn is no reason to lose the prediction.
        const found = await api.getNode(String(entry.id), signal).catch(() => null);
        if (found) places.set(String(entry.id), found.index);
      }
    }),
  );
  return places;
}

export function summary(prediction: Prediction): string {
  const parts: string[] = [];
  if (prediction.abstained) parts.push(`The model would rather not answer: ${prediction.why || "it is not sure enough"}.`);
  if (prediction.class !== null) {
    const sure = prediction.confidence === null ? "" : `, ${Math.round(prediction.confidence * 100)} percent sure`;
    parts.push(`${prediction.abstained ? "Best guess" : "Predicted class"} ${prediction.class}${sure}.`);
  } else if (prediction.cluster !== null) parts.push(`Cluster ${prediction.cluster}.`);
  if (prediction.links?.length) parts.push(`${prediction.links.length} links suggested.`);
  return parts.join(" ");
}

export function clearNew(): void {
  predictRequest?.abort();
  batch(() => {
    typed.value = {};
    known.value = "";
    fieldErrors.value = {};
    predictProblem.value = null;
    predicting.value = false;
    landed.value = null;
  });
}

// The link
let pending = 0;
let written = location.hash;

export function currentHash(): string {
  return writeHash({
    colour: colourBy.value,
    view: view.value ?? undefined,
    node: card.value ? String(card.value.id) : undefined,
    typed: typed.value,
    asked: landed.value !== null,
  });
}

effect(() => {
  const hash = currentHash();
  if (loading.value || failure.value || tokenAsked.value) return; // keep what was opened until it can be shown
  clearTimeout(pending);
  pending = window.setTimeout(() => {
    if (hash === location.hash) return;
    written = hash;
    history.replaceState(null, "", hash || location.pathname + location.search);
  }, 250);
});

addEventListener("hashchange", () => {
  if (location.hash === written) return;
  const shared = readHash(location.hash);
  written = location.hash;
  batch(() => {
    if (shared.colour) setColourBy(shared.colour);
    if (shared.typed) typed.value = shared.typed;
    if (shared.view) jump.value = { box: shared.view, run: jump.value.run + 1 };
  });
  if (shared.node && shared.node !== String(card.value?.id)) void openNode(shared.node, !shared.view);
  if (shared.typed && shared.asked) void askPrediction(shared.view !== undefined);
});

export function setColourBy(next: ColourBy): void {
  if (next === colourBy.value) return;
  batch(() => {
    colourBy.value = next;
    hidden.value = new Set();
    hot.value = null;
  });
}

export function toggleCategory(category: number): void {
  const next = new Set(hidden.value);
  if (!next.delete(category)) next.add(category);
  hidden.value = next;
}

/** Show one category alone; a second time brings all back. */
export function onlyCategory(category: number): void {
  const all = Array.from({ length: categories.value + 1 }, (_, i) => i - 1);
  const others = all.filter((other) => other !== category);
  const alone = !hidden.value.has(category) && others.every((other) => hidden.value.has(other));
  hidden.value = new Set(alone ? [] : others);
}
