// The service's answers, as the explorer reads them.

export type FieldKind = "text" | "number" | "category" | "vector";
export type ColourBy = "class" | "cluster";

export interface Field {
  name: string;
  kind: FieldKind;
  choices?: string[] | null;
  example?: unknown;
  length?: number | null;
}

export interface Info {
  name: string;
  classes: string[];
  counts: { nodes: number; edges: number };
  form: Field[];
  tasks: string[];
  version: string;
}

export interface NodeRef {
  id: string;
  index?: number | null;
  class?: string | null;
  distance?: number | null;
}

export interface NodeCard {
  id: string;
  position: [number, number];
  index: number;
  class: string | null;
  cluster: number | null;
  degree?: number;
  neighbours?: NodeRef[];
  near?: NodeRef[];
}

export interface LinkRef {
  id: string;
  score: number;
  index?: number | null;
}

export interface Prediction {
  id?: string | null;
  class: string | null;
  confidence: number | null;
  probabilities: Record<string, number> | null;
  set: string[] | null;
  abstained: boolean;
  why: string;
  cluster: number | null;
  links: LinkRef[] | null;
  near: NodeRef[] | null;
  position: [number, number] | null;
}

export interface MapData {
  count: number;
  classes: string[];
  clusters: number;
  version: string;
  x: Float32Array;
  y: Float32Array;
  classOf: Int16Array;
  clusterOf: Int16Array;
}
