// @ts-check
/** A headless Chromium with one page, and what goes wrong in it. */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const PATHS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const PATIENCE_MS = 60_000;

export async function open({ dark = false, width = 1360, height = 860, still = false } = {}) {
  const executablePath = process.env.CHROMIUM ?? PATHS.find((path) => existsSync(path));
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? "dark" : "light",
    reducedMotion: still ? "reduce" : "no-preference",
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  /** @type {string[]} */
  const troubles = [];
  page.on("pageerror", (error) => troubles.push(`error: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error") troubles.push(`${message.text()} ${message.location().url}`);
  });
  return { browser, context, page, troubles };
}

/**
 * What axe finds against WCAG 2.2 A and AA, one line each.
 * @param {import("playwright-core").Page} page
 */
export async function axe(page) {
  // Through the debugger: the page's own policy forbids scripts that are not its own.
  await page.evaluate(AXE);
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const found = await page.evaluate(async (values) => {
    // @ts-expect-error axe is there since the line above
    const { violations } = await globalThis.axe.run({ runOnly: { type: "tag", values } });
    return violations.map((/** @type {any} */ each) => {
      const where = each.nodes.map((/** @type {any} */ node) => `${node.target} ${node.failureSummary}`);
      return `${each.id}: ${each.help}: ${where.slice(0, 3).join(" | ")}`;
    });
  }, tags);
  return /** @type {string[]} */ (found);
}

/**
 * @param {unknown} isTrue
 * @param {string} text
 * @returns {asserts isTrue}
 */
export function assert(isTrue, text) {
  if (!isTrue) throw new Error(text);
}

/** @param {string} text */
export function say(text) {
  process.stdout.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`);
}
