/** Numbers, times and sizes as people read them. */

const THIN = "\u202f";

export function count(value: number): string {
  return Math.round(value).toLocaleString("en-US").replace(/,/g, THIN);
}

/** 1,234,567 as "1.23 M"; what is exact stays so. */
export function short(value: number): string {
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]] as const) {
    if (value >= limit) {
      const scaled = value / (unit === "k" ? 1e3 : limit);
      return `${trimmed(scaled)}${THIN}${unit}`;
    }
  }
  return value >= 100 || Number.isInteger(value) ? count(value) : trimmed(value);
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let scaled = value;
  let at = 0;
  while (scaled >= 1000 && at < units.length - 1) {
    scaled /= 1000;
    at += 1;
  }
  return `${at === 0 ? Math.round(scaled) : trimmed(scaled)}${THIN}${units[at]}`;
}

export function seconds(value: number): string {
  if (value < 0.0005) return `0${THIN}ms`;
  if (value < 1) return `${Math.round(value * 1000)}${THIN}ms`;
  if (value < 120) return `${trimmed(value)}${THIN}s`;
  if (value < 7200) return `${Math.round(value / 60)}${THIN}min`;
  return value < 172_800 ? `${trimmed(value / 3600)}${THIN}h` : `${trimmed(value / 86_400)}${THIN}d`;
}

/** An estimate: no more digits than it has. */
export function roughly(value: number): string {
  if (value < 1) return "a second";
  return value < 120 ? `${Math.round(value)}${THIN}s` : seconds(value);
}

export function percent(share: number): string {
  return `${share > 0 && share < 0.01 ? "<1" : Math.round(share * 100)}${THIN}%`;
}

export function ago(then: number, now: number): string {
  const passed = Math.round(now - then);
  return passed < 1 ? "just now" : `${seconds(passed).replace(".00", "")} ago`;
}

/** Local time of day; with the date if it is not that of `now`. */
export function clock(time: number, now = Date.now() / 1000): string {
  const at = new Date(time * 1000);
  const text = [at.getHours(), at.getMinutes(), at.getSeconds()]
    .map((part) => String(part).padStart(2, "0"))
    .join(":");
  const isToday = at.toDateString() === new Date(now * 1000).toDateString();
  if (isToday) return text;
  const month = String(at.getMonth() + 1).padStart(2, "0");
  return `${at.getFullYear()}-${month}-${String(at.getDate()).padStart(2, "0")} ${text}`;
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

function trimmed(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
