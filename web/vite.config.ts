import { defineConfig } from "vite";

// The built files go into the Python package. Nothing may be inlined and nothing may need eval: the service sends
// "default-src 'self'". Paths are relative, so the page also works behind a proxy that adds a prefix.
const service = process.env.GSPARC_SERVICE ?? "http://127.0.0.1:8000";

export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/gsparc/server/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: { proxy: { "/v1": service, "/info": service } },
});
