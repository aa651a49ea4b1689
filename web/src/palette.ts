import { COLOURS } from "./palette.data";

export type Theme = "light" | "dark";

/** Shapes a dot may have; they tell colours apart that some eyes cannot. */
export const SHAPES = ["circle", "square", "triangle", "diamond", "cross"] as const;
const BEFORE_SHAPES = 10; // so many colours are told apart by colour alone

export const UNLABELLED = { light: "#8b93a1", dark: "#6f7887" } as const;

export interface Look {
  colour: string;
  shape: number;
}

/** Order of categories by size, so that the largest get the colours that lie farthest apart. */
export function ranks(counts: Uint32Array): number[] {
  const order = Array.from({ length: counts.length - 1 }, (_, i) => i);
  order.sort((a, b) => counts[b + 1]! - counts[a + 1]! || a - b);
  const rank = new Array<number>(order.length);
  order.forEach((category, place) => (rank[category] = place));
  return rank;
}

/** Colour and shape of the category of the given rank; -1 is "no category". */
export function look(rank: number, theme: Theme): Look {
  if (rank < 0) return { colour: UNLABELLED[theme], shape: 0 };
  const colours = COLOURS[theme];
  return { colour: colours[rank % colours.length]!, shape: Math.floor(rank / BEFORE_SHAPES) % SHAPES.length };
}

export function toRgb(hex: string): [number, number, number] {
  const value = parseInt(hex.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}
