// @ts-check
/**
 * A person's path through every page of a running service under load: walk.mjs LINK [SHOTS].
 * Two workers at the beginning; one operator, keyed by whole numbers.
 */
import { assert, axe, open, say } from "./browser.mjs";

const [link, shots] = process.argv.slice(2);
assert(link, "Give the link to the page.");
const { browser, context, page, troubles } = await open();

/** @param {string} name */
const shoot = async (name) => {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png` });
};
/** @param {string} name */
const go = async (name) => {
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name }).click();
  await page.getByRole("main", { name }).waitFor();
};
/** @param {string} path */
const api = (path) => page.evaluate(async (asked) => (await fetch(`/api/v1${asked}`)).json(), path);
/** @param {string} where */
const check = async (where) => {
  const found = await axe(page);
  assert(found.length === 0, `axe, ${where}:\n${found.join("\n")}`);
};

try {
  await logIn();
  await lookAround();
  await cancelAMove();
  await rescale();
  await goBackInTime();
  await loseAWorker();
  await lookKeysUp();
  await recover();
  await brush();
  await inTheDark();
  assert(troubles.length === 0, `the browser said:\n${troubles.join("\n")}`);
  say("done");
} catch (error) {
  await shoot("failed");
  say(`the browser said: ${troubles.join("; ") || "nothing"}`);
  throw error;
} finally {
  await browser.close();
}

async function logIn() {
  await page.goto(link);
  await page.getByRole("heading", { name: /Healthy|Worth a look|Workers start/ }).waitFor();
  await page.goto(link); // used, but by this browser
  await page.getByText(/\d workers?, batches of/).waitFor();
  const other = await (await browser.newContext()).newPage();
  const refused = await other.goto(link);
  assert(refused?.status() === 403, "a link works once");
  await other.close();
  say("logged in");
}

async function lookAround() {
  await page.getByText("Rows a second").first().waitFor();
  await page.getByRole("img", { name: /w1 busy \d/ }).waitFor();
  await check("overview");
  await go("Workers and key groups");
  const grid = page.getByRole("application", { name: /key groups of 2 workers/ });
  await grid.focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await page.getByText(/Key group 1, on w/).waitFor();
  await page.getByRole("button", { name: "Heat" }).click();
  await page.getByText(/recent rows/).waitFor();
  await check("grid");
  await page.getByRole("button", { name: "Table" }).click();
  await page.getByRole("table", { name: "Key groups" }).getByRole("cell", { name: "w2" }).first().waitFor();
  await check("table");
  say("looked around");
}

async function cancelAMove() {
  await go("Reconfigurations");
  await page.getByRole("slider", { name: "Workers" }).fill("3");
  await page.getByRole("status", { name: "Forecast" }).getByText(/key groups, .*about/).waitFor();
  await page.getByLabel("Limit for copies, MB/s").fill("0.01");
  await check("form");
  await shoot("form");
  await page.getByRole("button", { name: "Begin" }).click();
  await page.getByText(/Running: live, 2 → 3 workers/).waitFor();
  await go("Workers and key groups");
  await page.getByRole("button", { name: "Grid" }).click();
  await page.getByText(/On the move: /).waitFor();
  await shoot("moving");
  await check("moving");
  await go("Reconfigurations");
  await shoot("running");
  await check("running");
  await page.getByRole("button", { name: "Cancel" }).click();
  const history = page.getByRole("region", { name: "History of reconfigurations" });
  await history.getByText("replaced").or(history.getByText("cancelled")).first().waitFor();
  await page.getByText(/Running:/).waitFor({ state: "detached" });
  const moves = await api("/moves");
  assert(moves.every((/** @type {any} */ move) => move.cause === "page"), "the page asked for them");
  say("cancelled a move");
}

async function rescale() {
  await page.getByLabel("Limit for copies, MB/s").fill("");
  await page.getByRole("slider", { name: "Workers" }).fill("3");
  await page.getByRole("button", { name: "Begin" }).click();
  const row = page.getByRole("row", { name: /page live 2 → 3 done/ });
  await row.waitFor();
  await shoot("history");
  await go("Workers and key groups");
  await page.getByRole("application", { name: /key groups of 3 workers/ }).waitFor();
  const { workers } = await api("/status");
  assert(Object.keys(workers).length === 3, "three workers");
  say("rescaled");
}

async function goBackInTime() {
  const slider = page.getByRole("slider", { name: "Moment" });
  await slider.focus();
  await page.keyboard.press("Home");
  await page.getByRole("application", { name: /key groups of 2 workers/ }).waitFor();
  await page.getByText("routing 1").waitFor();
  await page.getByRole("button", { name: "Back to now" }).click();
  await page.getByRole("application", { name: /key groups of 3 workers/ }).waitFor();
  say("went back in time");
}

async function loseAWorker() {
  await go("Overview");
  const { workers } = await api("/status");
  process.kill(workers.w2.pid, "SIGKILL");
  await page.getByText(/w2 (died|is \w+, not in service)/).first().waitFor();
  await page.getByText(/w2 died .* and was replaced.*signal 9/).waitFor();
  await shoot("overview");
  await check("a finding");
  await go("Events");
  await page.getByText("worker died").waitFor();
  await page.getByRole("button", { name: "Trouble" }).click();
  await page.getByText("move began").waitFor({ state: "detached" });
  await check("events");
  say("lost a worker");
}

async function lookKeysUp() {
  await go("State");
  await page.getByLabel("Key", { exact: true }).fill("7");
  await page.getByRole("button", { name: "Look up" }).click();
  const found = page.getByRole("status", { name: "Found" });
  await found.getByText("As of batch").waitFor();
  assert(/w[123]/.test(await found.innerText()), "a key has an owner");
  await page.getByLabel("Key", { exact: true }).fill("[1, 2, 3]");
  await page.getByRole("button", { name: "Look up" }).click();
  await found.getByText(/3 of 1 values/).waitFor();
  troubles.splice(0, troubles.length, ...troubles.filter((each) => !each.includes("400 (Bad Request)")));
  await page.getByRole("button", { name: "Read", exact: true }).click();
  await page.getByRole("region", { name: "Largest rows" }).waitFor();
  await shoot("state");
  await check("state");
  say("looked keys up");
}

async function recover() {
  await go("Recovery");
  await page.getByText(/the query continues behind batch \d/).waitFor();
  await page.getByLabel("Name of the savepoint").fill("by-hand");
  await page.getByRole("button", { name: "Make a savepoint" }).click();
  await page.getByRole("cell", { name: "by-hand" }).waitFor();
  await check("recovery");
  say("made a savepoint");
}

async function brush() {
  await go("Timeline");
  const chart = page.getByRole("img", { name: /Seconds of each batch by/ });
  const box = await chart.boundingBox();
  assert(box, "there is a chart");
  await page.mouse.move(box.x + box.width * 0.5, box.y + 100);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.9, box.y + 120, { steps: 5 });
  await page.mouse.up();
  await page.getByRole("button", { name: "All of the chart" }).waitFor();
  await page.getByRole("table", { name: "Batches" }).getByRole("row").nth(1).waitFor();
  await shoot("timeline");
  await check("timeline");
  say("brushed");
}

async function inTheDark() {
  await page.getByRole("button", { name: "Dark colours" }).click();
  for (const name of ["Overview", "Workers and key groups", "Reconfigurations", "State", "Events"]) {
    await go(name);
    await check(`${name}, dark`);
    await shoot(`dark-${name.split(" ")[0]?.toLowerCase()}`);
  }
  say("dark");
}
