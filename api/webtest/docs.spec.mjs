import AxeBuilder from "@axe-core/playwright";
import { expect, test } from "@playwright/test";

const widths = { phone: { width: 320, height: 640 }, desktop: { width: 1280, height: 800 } };
const verbs = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

// open opens /docs and notes what a page of ours never does.
async function open(page) {
  const seen = { requests: [], errors: [] };
  const origin = new URL(process.env.PHAROS_URL).origin;
  page.on("request", (r) => {
    if (new URL(r.url()).origin !== origin) seen.requests.push(r.url());
  });
  page.on("console", (m) => {
    if (m.type() === "error" || m.type() === "warning") seen.errors.push(m.text());
  });
  page.on("pageerror", (e) => seen.errors.push(String(e)));
  page.on("requestfailed", (r) => seen.errors.push(`${r.url()}: ${r.failure()?.errorText}`));
  page.on("response", (r) => {
    if (r.status() >= 400) seen.errors.push(`${r.url()}: ${r.status()}`);
  });
  const response = await page.goto("/docs");
  expect(response.status()).toBe(200);
  return { response, seen };
}

for (const scheme of ["light", "dark"]) {
  for (const [name, viewport] of Object.entries(widths)) {
    test.describe(`${scheme}, ${name}`, () => {
      test.use({ colorScheme: scheme, viewport });

      test("shows, fits, asks nobody else and is accessible", async ({ page }) => {
        const { response, seen } = await open(page);
        expect.soft(response.headers()["content-type"]).toContain("text/html");
        expect.soft(response.headers()["content-security-policy"]).toContain("default-src");
        expect.soft(response.headers()["content-security-policy"]).not.toContain("unsafe-");
        expect.soft(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)).toBe(0);

        const { violations } = await new AxeBuilder({ page }).analyze();
        expect.soft(violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).join(" ")}`)).toEqual([]);
        expect.soft(seen).toEqual({ requests: [], errors: [] });
      });
    });
  }
}

test("light and dark differ", async ({ page }) => {
  const colours = [];
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await open(page);
    colours.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color));
  }
  expect(colours[0]).not.toEqual(colours[1]);
});

test("every operation of the document is on the page", async ({ page, request }) => {
  const document = await (await request.get("/openapi.json")).json();
  await open(page);
  const text = (await page.locator("main").innerText()).replace(/\s+/g, " ");
  const missing = [];
  let count = 0;
  for (const [path, item] of Object.entries(document.paths)) {
    for (const verb of verbs.filter((v) => v in item)) {
      count++;
      if (!text.includes(`${verb.toUpperCase()} ${path} `)) missing.push(`${verb.toUpperCase()} ${path}`);
      if (!text.includes(item[verb].summary)) missing.push(`${verb.toUpperCase()} ${path}: ${item[verb].summary}`);
    }
  }
  expect(count).toBeGreaterThan(10);
  expect(missing).toEqual([]);
});

test("the keyboard reaches everything and shows where it is", async ({ page }) => {
  await open(page);
  const reachable = await page.locator("a[href]:visible, button:visible, summary:visible, input:visible").count();
  expect(reachable).toBeGreaterThan(10);
  const reached = new Set();
  const hidden = [];
  // Scrolled areas take the focus too.
  for (let i = 0; i < reachable * 3; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      if (e === document.body) return null;
      const style = getComputedStyle(e);
      globalThis.order ??= new Map();
      if (!order.has(e)) order.set(e, order.size);
      return {
        key: order.get(e),
        counts: e.matches("a[href], button, summary, input"),
        shown: style.outlineStyle !== "none" && style.outlineWidth !== "0px",
        what: e.outerHTML.slice(0, 120),
      };
    });
    if (at === null) break; // round
    if (at.counts) reached.add(at.key);
    if (!at.shown) hidden.push(at.what);
  }
  expect(hidden).toEqual([]);
  expect(reached.size).toBe(reachable);
});

test("Enter follows a link of the contents to its operation", async ({ page }) => {
  await open(page);
  const link = page.locator('a[href^="#"]').filter({ hasText: "/v1/live" }).first();
  await link.focus();
  await page.keyboard.press("Enter");
  const id = decodeURIComponent(new URL(page.url()).hash.slice(1));
  expect(id).not.toBe("");
  await expect(page.locator(`[id="${id}"]`)).toBeInViewport();
});
