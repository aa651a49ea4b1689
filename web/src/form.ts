import type { Field } from "./types";

export type Values = Record<string, string>;
export type Errors = Record<string, string>;

/** The JSON record for /v1/predict, or what is wrong with which field. Empty fields are left out: they are missing. */
export function toRecord(fields: Field[], values: Values): { record: Record<string, unknown>; errors: Errors } {
  const record: Record<string, unknown> = {};
  const errors: Errors = {};
  for (const field of fields) {
    const text = (values[field.name] ?? "").trim();
    if (!text) continue;
    if (field.kind === "number") {
      const number = Number(text);
      if (Number.isFinite(number)) record[field.name] = number;
      else errors[field.name] = `“${short(text)}” is not a number.`;
    } else if (field.kind === "vector") {
      const parsed = parseVector(text, lengthOf(field));
      if (typeof parsed === "string") errors[field.name] = parsed;
      else record[field.name] = parsed;
    } else record[field.name] = field.kind === "text" ? (values[field.name] ?? "") : text;
  }
  return { record, errors };
}

/** How many numbers a vector has, where the service tells or shows it. */
export function lengthOf(field: Field): number | null {
  return field.length ?? (Array.isArray(field.example) && field.example.length ? field.example.length : null);
}

export function parseVector(text: string, length: number | null): number[] | string {
  const parts = text.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter(Boolean);
  const bad = parts.find((part) => !Number.isFinite(Number(part)));
  if (bad !== undefined) return `“${short(bad)}” is not a number; separate numbers by commas or spaces.`;
  if (length !== null && parts.length !== length) return `${parts.length} numbers were given, ${length} are expected.`;
  return parts.map(Number);
}

/** Which field an error of the service speaks about: the one it names, else the first whose name is in its sentence. */
export function fieldOf(fields: Field[], message: string, named?: string | null): string | null {
  if (named && fields.some((field) => field.name === named)) return named;
  const byLength = [...fields].sort((a, b) => b.name.length - a.name.length);
  const hit = byLength.find((field) => new RegExp(`(^|[^\\w])${escape(field.name)}([^\\w]|$)`, "i").test(message));
  return hit?.name ?? null;
}

export function exampleOf(field: Field): string {
  if (field.example === null || field.example === undefined) return "";
  return Array.isArray(field.example) ? field.example.join(", ") : String(field.example);
}

const FEW_FIELDS = 14;

/** Texts first, they say most; what goes beyond a screenful is folded away. */
export function arrange(fields: Field[]): { shown: Field[]; folded: Field[] } {
  const place = { text: 0, category: 1, number: 2, vector: 3 };
  const order = fields.map((field, i) => ({ field, i })).sort((a, b) => place[a.field.kind] - place[b.field.kind] || a.i - b.i);
  const sorted = order.map(({ field }) => field);
  return sorted.length <= FEW_FIELDS + 2 ? { shown: sorted, folded: [] } : { shown: sorted.slice(0, FEW_FIELDS), folded: sorted.slice(FEW_FIELDS) };
}

/** `installed_size` -> `Installed size`: names are columns, labels are read by people. */
export function labelOf(name: string): string {
  const words = name.replace(/[_-]+/g, " ").trim();
  return words ? words.charAt(0).toUpperCase() + words.slice(1) : name;
}

const short = (text: string): string => (text.length > 24 ? `${text.slice(0, 24)}…` : text);
const escape = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
