import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const server = process.env.WICK_URL ?? "http://127.0.0.1:8000";
const routes = ["/agents", "/auth", "/threads", "/runs", "/approvals", "/usage", "/health", "/replay"];

export default defineConfig({
  plugins: [react()],
  build: { outDir: "../src/wick/server/ui", emptyOutDir: true, sourcemap: false, assetsInlineLimit: 0 },
  server: {
    port: 3000,
    strictPort: true,
    proxy: Object.fromEntries(routes.map((route) => [route, { target: server, ws: true, changeOrigin: true }])),
  },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/each.test-setup.ts"],
    testTimeout: 20_000,
    pool: "threads",
    isolate: false, // one document for many files, which is three times as fast
    maxWorkers: 2,
  },
});
