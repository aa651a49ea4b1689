import { decodeMap } from "./mapdata";
import type { Info, MapData, NodeCard, NodeRef, Prediction } from "./types";

const TOKEN = "gsparc-token";
const TIMEOUT_MS = 60_000;

/** Any answer but success, and no answer at all (status 0). */
export class ServiceError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly field: string | null = null,
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

export const token = {
  get: (): string => readSession() ?? "",
  set: (value: string): void => {
    try {
      sessionStorage.setItem(TOKEN, value);
    } catch {
      kept = value; // storage is switched off: keep it for as long as the page is open
    }
  },
};

let kept: string | null = null;

function readSession(): string | null {
  try {
    return sessionStorage.getItem(TOKEN) ?? kept;
  } catch {
    return kept;
  }
}

async function request(path: string, options: { body?: unknown; signal?: AbortSignal } = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  let response: Response;
  try {
    response = await fetch(new URL(path, document.baseURI), {
      method: options.body === undefined ? "GET" : "POST",
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal ? AbortSignal.any([options.signal, limit]) : limit,
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    if (limit.aborted) throw new ServiceError(0, "The service did not answer within a minute.");
    throw new ServiceError(0, "The service cannot be reached. Is it still running?");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

/** Turn `{"error": {"code", "message", "rows"}}` into one sentence. */
async function refusal(response: Response): Promise<ServiceError> {
  let message = "";
  let field: string | null = null;
  try {
    const { error } = (await response.json()) as { error?: { message?: string; field?: string; rows?: { message: string }[] } };
    message = error?.rows?.[0]?.message ?? error?.message ?? "";
    field = error?.field ?? null;
  } catch {
    // Not JSON: a proxy answered in the service's place, and the status has to do.
  }
  const retry = Number(response.headers.get("Retry-After") ?? "");
  const text = message || `The service answered with status ${response.status}.`;
  return new ServiceError(response.status, sentence(text), field, Number.isFinite(retry) && retry > 0 ? retry : null);
}

/** A capital letter at the start, unless that is the name of a column, and a full stop at the end. */
function sentence(text: string): string {
  const begun = /^[a-z]+[\s,:;]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

async function json<T>(path: string, options: { body?: unknown; signal?: AbortSignal } = {}): Promise<T> {
  return (await (await request(path, options)).json()) as T;
}

export const getInfo = (): Promise<Info> => json<Info>("info");

export async function getMap(): Promise<MapData> {
  return decodeMap(await (await request("v1/map")).arrayBuffer());
}

export const getNode = (id: string, signal?: AbortSignal): Promise<NodeCard> => json(`v1/nodes/${encodeURIComponent(id)}`, { signal });

export const getNodeAt = (index: number, signal?: AbortSignal): Promise<NodeCard> => json(`v1/nodes/by-position/${index}`, { signal });

export async function search(query: string, signal: AbortSignal): Promise<NodeRef[]> {
  const answer = await json<{ results?: NodeRef[] }>(`v1/search?q=${encodeURIComponent(query)}`, { signal });
  return answer.results ?? [];
}

export interface Asked {
  record: Record<string, unknown>;
  coverage: number;
  known: string[]; // ids of nodes that the new one is already linked to
}

/** A prediction, which model made it, and how many of the known neighbours it could not find. */
export interface Answer {
  prediction: Prediction;
  model: string;
  ignored: number;
}

export async function predict(asked: Asked, signal: AbortSignal): Promise<Answer> {
  const body = {
    records: [asked.record],
    coverage: asked.coverage,
    ...(asked.known.length ? { edges: asked.known.map((id) => [0, id]) } : {}),
  };
  const answer = await json<{ predictions?: Prediction[]; model?: string; ignored_edges?: number }>("v1/predict", { body, signal });
  const first = answer.predictions?.[0];
  if (!first) throw new ServiceError(502, "The service sent no prediction back.");
  return { prediction: first, model: answer.model ?? "", ignored: answer.ignored_edges ?? 0 };
}
