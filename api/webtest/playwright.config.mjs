import { defineConfig } from "@playwright/test";

// Debian's Chromium, which asks nobody but us: the flags turn off what it would
// look for in the world by itself.
export default defineConfig({
  testDir: ".",
  outputDir: process.env.PHAROS_RESULTS,
  forbidOnly: true,
  workers: 1,
  timeout: 60_000,
  reporter: "line",
  use: {
    baseURL: process.env.PHAROS_URL,
    launchOptions: {
      executablePath: process.env.PHAROS_CHROMIUM,
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-default-apps",
      ],
    },
  },
});
