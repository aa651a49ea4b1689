// Colour arithmetic for choosing and checking the palette: sRGB, OKLab, contrast, and colour-vision deficiencies.

const toLinear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const toGamma = (v) => (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055);
const times = (m, v) => m.map((row) => row[0] * v[0] + row[1] * v[1] + row[2] * v[2]);

// Machado et al. 2009, severity 1.0, applied to linear RGB.
export const EYES = [
  [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
];

function linearToOklab(rgb) {
  const [l, m, s] = times(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]],
    rgb,
  ).map(Math.cbrt);
  return times(
    [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099], [0.0259040371, 0.7827717662, -0.808675766]],
    [l, m, s],
  );
}

/** OKLab of an sRGB colour (0..1) as the given eye sees it. */
export function seenBy(rgb, eye) {
  const seen = times(eye, rgb.map(toLinear)).map((v) => Math.min(1, Math.max(0, v)));
  return linearToOklab(seen);
}

/** sRGB (0..1) of an OKLCH colour, or null when the screen cannot show it. */
export function oklchToRgb(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const cubes = times([[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.291485548]], [lightness, a, b]).map((v) => v ** 3);
  const linear = times(
    [[4.0767416621, -3.3077115913, 0.2309699292], [-1.2684380046, 2.6097574011, -0.3413193965], [-0.0041960863, -0.7034186147, 1.707614701]],
    cubes,
  );
  if (linear.some((v) => v < -1e-4 || v > 1 + 1e-4)) return null;
  return linear.map((v) => toGamma(Math.min(1, Math.max(0, v))));
}

const luminance = (rgb) => times([[0.2126, 0.7152, 0.0722], [0, 0, 0], [0, 0, 0]], rgb.map(toLinear))[0];

/** Contrast ratio as WCAG 2 defines it. */
export function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

export const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
export const hex = (rgb) => "#" + rgb.map((v) => Math.round(v * 255).toString(16).padStart(2, "0")).join("");
