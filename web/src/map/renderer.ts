import type { MapData } from "../types";
import type { Camera, Size } from "./camera";

const VERTEX = `#version 300 es
layout(location = 0) in float a_x;
layout(location = 1) in float a_y;
layout(location = 2) in int a_category;
uniform vec2 u_centre;
uniform vec2 u_scale;      // clip units per data unit
uniform float u_size;      // pixels
uniform sampler2D u_style; // row 0: colour, row 1: shape and size of each category
flat out vec4 v_colour;
flat out int v_shape;
void main() {
  int column = (a_category + 1) % textureSize(u_style, 0).x;
  v_colour = texelFetch(u_style, ivec2(column, 0), 0);
  vec4 form = texelFetch(u_style, ivec2(column, 1), 0) * 255.0;
  vec2 place = (vec2(a_x, a_y) - u_centre) * u_scale;
  gl_Position = v_colour.a > 0.0 ? vec4(place, 0.0, 1.0) : vec4(2.0, 2.0, 2.0, 1.0);
  gl_PointSize = max(1.0, u_size * form.g / 64.0);
  v_shape = gl_PointSize < 5.0 ? 0 : int(form.r + 0.5);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
flat in vec4 v_colour;
flat in int v_shape;
uniform float u_size;
out vec4 colour;
void main() {
  vec2 p = gl_PointCoord * 2.0 - 1.0;
  vec2 q = abs(p);
  float d;                                                   // <= 1 inside the shape
  if (v_shape == 0) d = length(p);
  else if (v_shape == 1) d = max(q.x, q.y) * 1.18;
  else if (v_shape == 2) d = max(q.x * 1.0 - p.y * 0.5 + 0.5, p.y * 1.15);
  else if (v_shape == 3) d = q.x + q.y;
  else d = max(min(q.x, q.y) * 2.9, max(q.x, q.y));
  float soft = min(0.6, 1.6 / u_size);
  float alpha = v_colour.a * (1.0 - smoothstep(1.0 - soft, 1.0, d));
  colour = vec4(v_colour.rgb * alpha, alpha);
}`;

/** How one category is drawn. */
export interface Style {
  rgb: [number, number, number];
  alpha: number; // 0 hides
  shape: number;
  size: number; // 1 is the usual
}

/**
 * Draws the nodes with WebGL 2. Coordinates are uploaded once; colours, shapes and visibility live in a small texture,
 * so that a hover over the legend rewrites bytes, not nodes. What was drawn stays, so a picture may be drawn in parts.
 */
export class Renderer {
  private readonly gl: WebGL2RenderingContext;
  private program: WebGLProgram | null = null;
  private places: Record<string, WebGLUniformLocation | null> = {};
  private layouts: Partial<Record<"class" | "cluster", WebGLVertexArrayObject>> = {};
  private texture: WebGLTexture | null = null;
  count = 0;

  constructor(private readonly canvas: HTMLCanvasElement) {
    const gl = canvas.getContext("webgl2", { alpha: true, antialias: false, depth: false, stencil: false, preserveDrawingBuffer: true, powerPreference: "high-performance" });
    if (!gl) throw new Error("this browser offers no WebGL 2");
    this.gl = gl;
    this.prepare();
  }

  /** Whether the "graphics card" is a program on the processor. */
  get software(): boolean {
    const extension = this.gl.getExtension("WEBGL_debug_renderer_info");
    const name = String(extension ? this.gl.getParameter(extension.UNMASKED_RENDERER_WEBGL) : this.gl.getParameter(this.gl.RENDERER));
    return /swiftshader|llvmpipe|software|basic render/i.test(name);
  }

  /** Everything that a lost context takes away. */
  prepare(): void {
    const gl = this.gl;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]] as const) {
      const shader = gl.createShader(kind)!;
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost())
      throw new Error(gl.getProgramInfoLog(program) ?? "the map's shaders did not compile");
    this.program = program;
    for (const name of ["u_centre", "u_scale", "u_size", "u_style"]) this.places[name] = gl.getUniformLocation(program, name);
    this.texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    for (const side of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, side, gl.NEAREST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  setNodes(data: MapData): void {
    const gl = this.gl;
    this.count = data.count;
    const order = spread(data.count);
    const upload = (values: Float32Array | Int16Array): WebGLBuffer => {
      const buffer = gl.createBuffer();
      const mixed = values.map((_, i) => values[order[i]!]!);
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.bufferData(gl.ARRAY_BUFFER, mixed, gl.STATIC_DRAW);
      return buffer;
    };
    const [x, y] = [upload(data.x), upload(data.y)];
    for (const [name, values] of [["class", data.classOf], ["cluster", data.clusterOf]] as const) {
      const category = upload(values);
      const layout = gl.createVertexArray();
      gl.bindVertexArray(layout);
      for (const [location, buffer] of [[0, x], [1, y]] as const) {
        gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
        gl.enableVertexAttribArray(location);
        gl.vertexAttribPointer(location, 1, gl.FLOAT, false, 0, 0);
      }
      gl.bindBuffer(gl.ARRAY_BUFFER, category);
      gl.enableVertexAttribArray(2);
      gl.vertexAttribIPointer(2, 1, gl.SHORT, 0, 0);
      this.layouts[name] = layout;
    }
    gl.bindVertexArray(null);
  }

  /** Styles by category; the first is for nodes that have none. */
  setStyles(styles: Style[]): void {
    const gl = this.gl;
    const width = Math.min(styles.length, gl.getParameter(gl.MAX_TEXTURE_SIZE) as number);
    const bytes = new Uint8Array(width * 8);
    styles.slice(0, width).forEach(({ rgb, alpha, shape, size }, i) => {
      bytes.set([...rgb, Math.round(alpha * 255)], i * 4);
      bytes.set([shape, Math.min(255, Math.round(size * 64)), 0, 0], (width + i) * 4);
    });
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, width, 2, 0, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
  }

  /** Draw the nodes [from, to) of the mixed order; from 0 on an empty canvas, otherwise over what is there. */
  draw(camera: Camera, size: Size, ratio: number, by: "class" | "cluster", dot: number, from: number, to: number): void {
    const gl = this.gl;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    if (from === 0) {
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT);
    }
    const layout = this.layouts[by];
    if (to <= from || !layout) return;
    gl.useProgram(this.program);
    gl.bindVertexArray(layout);
    gl.uniform2f(this.places.u_centre!, camera.x, camera.y);
    gl.uniform2f(this.places.u_scale!, (2 * camera.scale) / size.width, (2 * camera.scale) / size.height);
    gl.uniform1f(this.places.u_size!, dot * ratio);
    gl.uniform1i(this.places.u_style!, 0);
    gl.drawArrays(gl.POINTS, from, to - from);
  }
}

/** All of 0..n-1, mixed so evenly that every beginning of it is a fair sample: steps of the golden ratio. */
export function spread(n: number): Uint32Array {
  let step = Math.max(1, Math.round(n * 0.6180339887));
  const shared = (a: number, b: number): number => (b ? shared(b, a % b) : a);
  while (n > 1 && shared(step, n) !== 1) step += 1;
  const order = new Uint32Array(n);
  for (let i = 0, at = 0; i < n; i++, at = (at + step) % n) order[i] = at;
  return order;
}
