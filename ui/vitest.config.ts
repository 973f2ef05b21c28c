import { defineConfig, mergeConfig } from "vitest/config";

import vite from "./vite.config";

const common = {
  css: { include: /\.module\.css$/, modules: { classNameStrategy: "scoped" as const } }, // the names of the built page
  environment: "jsdom",
  setupFiles: ["src/each.test-setup.ts"],
  testTimeout: 20_000,
};

export default mergeConfig(
  vite,
  defineConfig({
    test: {
      pool: "threads",
      maxWorkers: 2,
      projects: [
        // Many files share a document, which takes long to create.
        { extends: true, test: { name: "logic", include: ["src/**/*.test.ts"], ...common, isolate: false } },
        { extends: true, test: { name: "drawn", include: ["src/**/*.test.tsx"], ...common } },
      ],
    },
  }),
);
