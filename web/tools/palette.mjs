// Chooses the colours of src/palette.data.ts. Run `npm run palette` and commit what it writes.
//
// Every new colour is the one that is farthest from those already chosen, and "far" counts for the worst of four
// pairs of eyes: full colour vision, protanopia, deuteranopia, tritanopia (Machado, Oliveira & Fernandes 2009,
// severity 1). Candidates keep a contrast with the background of their theme, so no dot vanishes.
import { writeFileSync } from "node:fs";
import { contrast, hex, oklchToRgb, seenBy, EYES, distance } from "./colour.mjs";

const COUNT = 48;
// Full colour vision is asked for twice the distance, so that most readers see clean hues and not only shades;
// tritanopia is a thousand times rarer than the red-green kinds and asks for less.
const WEIGHTS = [0.5, 1, 1, 1.6];
const THEMES = {
  light: { background: [1, 1, 1], contrast: 2.3, light: [0.36, 0.76], seeds: ["#0072b2", "#e08a00"] },
  dark: { background: [0.063, 0.075, 0.098], contrast: 3.6, light: [0.56, 0.9], seeds: ["#4aa3e0", "#f0a830"] },
};

function candidates({ background, contrast: least, light: [low, high] }) {
  const found = [];
  for (let l = low; l <= high + 1e-9; l += 0.04)
    for (let c = 0.09; c <= 0.2; c += 0.02)
      for (let h = 0; h < 360; h += 8) {
        const rgb = oklchToRgb(l, c, h);
        if (rgb && contrast(rgb, background) >= least) found.push(rgb);
      }
  return found;
}

function choose(theme) {
  const pool = candidates(theme).map((rgb) => ({ rgb, seen: EYES.map((eye) => seenBy(rgb, eye)) }));
  const fromHex = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16) / 255);
  const chosen = theme.seeds.map((text) => ({ rgb: fromHex(text), seen: EYES.map((eye) => seenBy(fromHex(text), eye)) }));
  const apart = (a, b) => Math.min(...a.seen.map((lab, i) => WEIGHTS[i] * distance(lab, b.seen[i])));
  const nearest = pool.map((entry) => Math.min(...chosen.map((other) => apart(entry, other))));
  while (chosen.length < COUNT) {
    const best = nearest.indexOf(Math.max(...nearest));
    chosen.push(pool[best]);
    pool.forEach((entry, i) => (nearest[i] = Math.min(nearest[i], apart(entry, pool[best]))));
  }
  return chosen.map(({ rgb }) => hex(rgb));
}

const lines = Object.entries(THEMES).map(([name, theme]) => {
  const colours = choose(theme).map((text) => `"${text}"`);
  const rows = [];
  for (let i = 0; i < colours.length; i += 8) rows.push("    " + colours.slice(i, i + 8).join(", ") + ",");
  return `  ${name}: [\n${rows.join("\n")}\n  ],`;
});
const text = `// Made by tools/palette.mjs; do not edit by hand.\nexport const COLOURS = {\n${lines.join("\n")}\n} as const;\n`;
writeFileSync(new URL("../src/palette.data.ts", import.meta.url), text);
