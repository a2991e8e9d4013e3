// @ts-check
/**
 * How long frames take while somebody works with the page of many workers: fluid.mjs LINK [SHOTS].
 * Prints JSON: for each thing done, frames and their median, 95th percentile and longest.
 */
import { assert, open } from "./browser.mjs";

const [link, shots] = process.argv.slice(2);
assert(link, "Give the link to the page.");
const { browser, page, troubles } = await open();
/** @type {Record<string, {frames: number, median_ms: number, p95_ms: number, longest_ms: number}>} */
const measured = {};

/** @param {string} name */
const go = async (name) => {
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name }).click();
  await page.getByRole("main", { name }).waitFor();
};
/**
 * @param {string} name
 * @param {() => Promise<void>} work
 */
const during = async (name, work) => {
  await page.evaluate(() => {
    const frames = /** @type {number[]} */ ([]);
    Object.assign(globalThis, { frames, isWatched: true });
    let last = performance.now();
    const next = (/** @type {number} */ now) => {
      frames.push(now - last);
      last = now;
      // @ts-expect-error set above
      if (globalThis.isWatched) requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
  });
  await work();
  const frames = await page.evaluate(() => {
    // @ts-expect-error set above
    globalThis.isWatched = false;
    // @ts-expect-error set above
    return /** @type {number[]} */ (globalThis.frames.slice(1));
  });
  const sorted = [...frames].sort((a, b) => a - b);
  const at = (/** @type {number} */ q) => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0);
  measured[name] = { frames: frames.length, median_ms: at(0.5), p95_ms: at(0.95), longest_ms: at(1) };
};

try {
  await page.goto(link);
  await page.getByText("No service runs here.").waitFor();
  await go("Workers and key groups");
  await page.getByRole("application", { name: /^10000 key groups of \d+ workers/ }).waitFor();
  if (shots) await page.screenshot({ path: `${shots}/many.png` });
  const slider = page.getByRole("slider", { name: "Moment" });
  await slider.focus();
  await page.keyboard.press("Home");
  await during("replay of ownership", async () => {
    await page.getByRole("button", { name: "Replay" }).click();
    await page.waitForTimeout(3000);
    await page.getByRole("button", { name: "Pause" }).click();
  });
  await during("pointing at key groups", async () => {
    const box = await page.getByRole("application").boundingBox();
    assert(box, "there is a grid");
    await page.mouse.move(box.x + 5, box.y + 5);
    await page.mouse.move(box.x + box.width - 5, box.y + box.height - 5, { steps: 60 });
  });
  await page.getByRole("button", { name: "Table" }).click();
  await during("scrolling 10,000 rows", async () => {
    await page.getByLabel("Key groups, rows").hover();
    for (let turn = 0; turn < 40; turn += 1) await page.mouse.wheel(0, 900);
  });
  await go("Overview");
  await during("replay of latency", async () => {
    await page.getByRole("button", { name: "Replay" }).click();
    await page.waitForTimeout(3000);
    await page.getByRole("button", { name: "Pause" }).click();
  });
  await go("Timeline");
  await during("replay of phases", async () => {
    await page.getByRole("button", { name: "Replay" }).click();
    await page.waitForTimeout(3000);
    await page.getByRole("button", { name: "Pause" }).click();
  });
  assert(troubles.length === 0, `the browser said:\n${troubles.join("\n")}`);
  process.stdout.write(`${JSON.stringify(measured)}\n`);
} finally {
  await browser.close();
}
