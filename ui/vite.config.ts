import { basename } from "node:path";

import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const server = process.env.WICK_URL ?? "http://127.0.0.1:8000";
const routes = [
  "/agents",
  "/auth",
  "/threads",
  "/runs",
  "/approvals",
  "/usage",
  "/health",
  "/replay",
  "/models",
  "/settings",
];

export default defineConfig({
  base: "./", // the page may be mounted below a path
  plugins: [react()],
  css: {
    modules: {
      localsConvention: "camelCaseOnly",
      generateScopedName: (name, file) => `${basename(file.split("?")[0]!, ".module.css")}-${name}`, // stable, for tests
    },
  },
  build: {
    outDir: "../src/wick/server/ui",
    emptyOutDir: true,
    sourcemap: false,
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 2_000, // kB; diagrams and the editor are loaded when they are needed
  },
  server: {
    port: 3000,
    strictPort: true,
    proxy: Object.fromEntries(
      routes.map((route) => [route, { target: server, ws: true, changeOrigin: true, headers: { origin: server } }]),
    ), // the server listens to pages of its own alone
  },
});
