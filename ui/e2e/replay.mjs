// @ts-check
/** The page of a service that has ended, from its journal: replay.mjs LINK [SHOTS]. */
import { assert, axe, open, say } from "./browser.mjs";

const [link, shots] = process.argv.slice(2);
assert(link, "Give the link to the page.");
const { browser, page, troubles } = await open({ still: true });

/** @param {string} name */
const go = async (name) => {
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name }).click();
  await page.getByRole("main", { name }).waitFor();
};

try {
  await page.goto(link);
  await page.getByText("No service runs here.").waitFor();
  await go("Workers and key groups");
  await page.getByRole("application", { name: /key groups of 3 workers/ }).waitFor();
  const slider = page.getByRole("slider", { name: "Moment" });
  await slider.focus();
  await page.keyboard.press("Home");
  await page.getByRole("application", { name: /key groups of 2 workers/ }).waitFor();
  await page.getByRole("button", { name: "Replay" }).click();
  await page.getByRole("application", { name: /key groups of 3 workers/ }).waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await go("Overview");
  await page.getByText(/as the journal tells/).waitFor();
  if (shots) await page.screenshot({ path: `${shots}/replay.png` });
  await go("Reconfigurations");
  await slider.focus();
  await page.keyboard.press("End");
  await page.getByRole("row", { name: /page live 2 → 3 done/ }).waitFor();
  assert((await page.getByRole("button", { name: "Begin" }).count()) === 0, "nothing can be asked for");
  await go("State");
  await page.getByLabel("Key", { exact: true }).fill("7");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByRole("status", { name: "Found" }).getByText("As of batch").waitFor();
  await go("Recovery");
  await page.getByRole("cell", { name: "by-hand" }).waitFor();
  await go("Events");
  await page.getByText("service stopped").waitFor();
  const found = await axe(page);
  assert(found.length === 0, `axe:\n${found.join("\n")}`);
  assert(troubles.length === 0, `the browser said:\n${troubles.join("\n")}`);
  say("done");
} catch (error) {
  if (shots) await page.screenshot({ path: `${shots}/failed.png` });
  say(`the browser said: ${troubles.join("; ") || "nothing"}`);
  throw error;
} finally {
  await browser.close();
}
