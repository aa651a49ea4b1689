import { describe, expect, it } from "vitest";
import { arrange, fieldOf, labelOf, parseVector, toRecord } from "../src/form";
import { readHash, writeHash } from "../src/hash";
import { Budget } from "../src/map/budget";
import { between, fit, homeBox, pan, toData, toScreen, viewBox, zoomAt } from "../src/map/camera";
import { Grid } from "../src/map/grid";
import { densestPlaces } from "../src/map/labels";
import { spread } from "../src/map/renderer";
import { countCategories, decodeMap, MapFormatError, nearestOnMap } from "../src/mapdata";
import { COLOURS } from "../src/palette.data";
import { look, ranks, toRgb } from "../src/palette";
import type { Field } from "../src/types";
import { contrast, distance, EYES, seenBy } from "../tools/colour.mjs";

function mapBytes(header: string, x: number[], y: number[], classes: number[], clusters: number[]): ArrayBuffer {
  const text = new TextEncoder().encode(header.padEnd(Math.ceil(header.length / 4) * 4));
  const n = x.length;
  const buffer = new ArrayBuffer(4 + text.length + 12 * n);
  new DataView(buffer).setUint32(0, text.length, true);
  new Uint8Array(buffer).set(text, 4);
  const start = 4 + text.length;
  new Float32Array(buffer, start, n).set(x);
  new Float32Array(buffer, start + 4 * n, n).set(y);
  new Int16Array(buffer, start + 8 * n, n).set(classes);
  new Int16Array(buffer, start + 10 * n, n).set(clusters);
  return buffer;
}

describe("the map's bytes", () => {
  const bytes = mapBytes('{"count":3,"classes":["a","b"],"clusters":2}', [0, 1, 2], [5, 6, 7], [1, -1, 0], [0, 1, -1]);
  it("are read back", () => {
    const map = decodeMap(bytes);
    expect([map.count, map.classes, map.clusters]).toEqual([3, ["a", "b"], 2]);
    expect([...map.y, ...map.classOf, ...map.clusterOf]).toEqual([5, 6, 7, 1, -1, 0, 0, 1, -1]);
    expect([...countCategories(map.classOf, 2)]).toEqual([1, 1, 1]);
  });
  it("are refused when cut short or damaged", () => {
    expect(() => decodeMap(bytes.slice(0, -1))).toThrow(MapFormatError);
    expect(() => decodeMap(new ArrayBuffer(2))).toThrow("2 bytes");
    expect(() => decodeMap(mapBytes('{"count":-1}', [], [], [], []))).toThrow("count is -1");
    expect(() => decodeMap(mapBytes("{", [], [], [], []))).toThrow("not JSON");
  });
  it("tell the nearest nodes", () => expect(nearestOnMap(decodeMap(bytes), 0, 2)).toEqual([1, 2]));
});

describe("a link", () => {
  it("carries the state there and back", () => {
    const shared = { colour: "cluster" as const, view: { x0: -0.5, y0: 0, x1: 1.25, y1: 2 }, node: "a&b=c #1", typed: { text: "50 % + é\nnew" }, asked: true };
    expect(readHash(writeHash(shared))).toEqual(shared);
  });
  it("ignores nonsense", () => expect(readHash("#colour=red&view=1,2,x,4&view=&node=")).toEqual({}));
  it("leaves out texts too long for a link", () => expect(writeHash({ node: "a", typed: { t: "x".repeat(20_000) } })).toBe("#node=a"));
});

const FIELDS: Field[] = [{ name: "words", kind: "text" }, { name: "size", kind: "number" }, { name: "size_b", kind: "number" }, { name: "v", kind: "vector", length: 2 }];

describe("the form", () => {
  it("sends typed values and leaves empty ones out", () => {
    expect(toRecord(FIELDS, { words: " a tool", size: "1e3", v: "[1, 2]" })).toEqual({ record: { words: " a tool", size: 1000, v: [1, 2] }, errors: {} });
  });
  it("says what is wrong where", () => {
    expect(toRecord(FIELDS, { size: "12 kB" }).errors.size).toContain("12 kB");
    expect(parseVector("1 2 3", 2)).toBe("3 numbers were given, 2 are expected.");
    expect(parseVector("1, x", null)).toContain("“x”");
  });
  it("finds the field that an error speaks of", () => {
    expect(fieldOf(FIELDS, "column 'size_b': 3 came")).toBe("size_b");
    expect(fieldOf(FIELDS, "size is 'x', expected a number")).toBe("size");
    expect(fieldOf(FIELDS, "resize failed")).toBeNull();
    expect(fieldOf(FIELDS, "anything", "v")).toBe("v");
  });
  it("has labels for people", () => expect(labelOf("installed_size")).toBe("Installed size"));
  it("folds what goes beyond a screenful", () => {
    const many = Array.from({ length: 100 }, (_, i): Field => ({ name: `f${i}`, kind: i === 99 ? "text" : "number" }));
    const { shown, folded } = arrange(many);
    expect(shown[0]!.name).toBe("f99");
    expect(shown.length + folded.length).toBe(100);
  });
});

describe("the camera", () => {
  const size = { width: 800, height: 400 };
  const camera = fit({ x0: 0, y0: 0, x1: 4, y1: 2 }, size);
  it("fits a box and maps both ways", () => {
    expect(toScreen(camera, size, 0, 0)).toEqual([0, 400]);
    expect(toData(camera, size, 800, 0)).toEqual([4, 2]);
    expect(viewBox(camera, size)).toEqual({ x0: 0, y0: 0, x1: 4, y1: 2 });
  });
  it("keeps what is under the pointer when it zooms", () => {
    const before = toData(camera, size, 123, 45);
    const after = toData(zoomAt(camera, size, 123, 45, 3, [1, 1e6]), size, 123, 45);
    expect(after[0]).toBeCloseTo(before[0]);
    expect(after[1]).toBeCloseTo(before[1]);
    expect(zoomAt(camera, size, 0, 0, 1e9, [1, 500]).scale).toBe(500);
  });
  it("pans with the hand and flies from one place to another", () => {
    expect(pan(camera, 200, 0).x).toBe(1);
    expect(between(camera, pan(camera, 80, 40), 1)).toEqual(pan(camera, 80, 40));
    expect(between(camera, { ...camera, scale: 800 }, 0.5).scale).toBeCloseTo(400);
  });
  it("is not stretched by a far node, nor by nodes without a place", () => {
    const x = Float32Array.from({ length: 1000 }, (_, i) => (i === 0 ? 1e6 : i === 1 ? NaN : i / 1000));
    expect(homeBox(x, x).x1).toBeLessThan(2);
    expect(homeBox(new Float32Array([3]), new Float32Array([3])).x1).toBeGreaterThan(3);
  });
});

describe("nodes under the pointer", () => {
  it("are those that a search of all would find", () => {
    const n = 500;
    const x = Float32Array.from({ length: n }, (_, i) => Math.sin(i * 12.9898) * (i % 7 === 0 ? 3 : 1));
    const y = Float32Array.from({ length: n }, (_, i) => Math.cos(i * 78.233));
    x[3] = NaN;
    const grid = new Grid(x, y, { x0: -1, y0: -1, x1: 1, y1: 1 }); // some lie outside
    for (let q = 0; q < 60; q++) {
      const [px, py] = [Math.sin(q) * 3, Math.cos(q * 3)];
      const even = (i: number): boolean => i % 2 === 0;
      let [best, least] = [-1, 0.3 ** 2];
      for (let i = 0; i < n; i++) {
        const d = (x[i]! - px) ** 2 + (y[i]! - py) ** 2;
        if (even(i) && d <= least) [best, least] = [i, d];
      }
      expect(grid.nearest(px, py, 0.3, even)).toBe(best);
    }
  });
});

describe("drawing in parts", () => {
  it("visits every node once, evenly from the start", () => {
    for (const n of [0, 1, 2, 10, 1000]) expect([...spread(n)].sort((a, b) => a - b)).toEqual(Array.from({ length: n }, (_, i) => i));
    const first = [...spread(1000).slice(0, 100)];
    expect(first.filter((i) => i < 500).length).toBeGreaterThan(40);
    expect(first.filter((i) => i < 500).length).toBeLessThan(60);
  });
  it("draws less when frames are slow, more when they are fast", () => {
    const budget = new Budget(100_000, true);
    const start = budget.nodes;
    budget.frame(0, true);
    budget.frame(100, false);
    expect(budget.nodes).toBeLessThan(start);
    for (let i = 1; i < 60; i++) budget.frame(100 + i * 10, false);
    expect(budget.nodes).toBe(100_000);
    expect(new Budget(100_000, false).nodes).toBe(100_000);
  });
});

it("names stand where a category is densest", () => {
  const x = Float32Array.from([0.1, 0.11, 0.12, 0.9, 0.5]);
  const places = densestPlaces(x, x, Int16Array.from([0, 0, 0, 0, -1]), Uint32Array.from([1, 4]), { x0: 0, y0: 0, x1: 1, y1: 1 });
  expect(places.length).toBe(1);
  expect(places[0]!.x).toBeCloseTo(0.11);
});

describe("colours", () => {
  it("go to the largest categories first", () => {
    expect(ranks(Uint32Array.from([9, 1, 5, 5]))).toEqual([2, 0, 1]);
    expect(look(0, "light").shape).toBe(0);
    expect(look(12, "light").shape).toBe(1);
    expect(look(-1, "dark").colour).toBe("#6f7887");
  });
  for (const theme of ["light", "dark"] as const)
    it(`are apart for every kind of eye, and from the ${theme} ground`, () => {
      const rgb = COLOURS[theme].map((hex) => toRgb(hex).map((v) => v / 255));
      const least = (count: number): number => {
        let found = Infinity;
        for (const eye of EYES) for (let i = 0; i < count; i++) for (let j = 0; j < i; j++) found = Math.min(found, distance(seenBy(rgb[i], eye), seenBy(rgb[j], eye)));
        return found;
      };
      expect(least(8)).toBeGreaterThan(0.08);
      expect(least(12)).toBeGreaterThan(0.06);
      const ground = theme === "light" ? [1, 1, 1] : [0.063, 0.075, 0.098];
      for (const colour of rgb) expect(contrast(colour, ground)).toBeGreaterThan(2.2);
      expect(new Set(COLOURS[theme]).size).toBe(48);
    });
});
