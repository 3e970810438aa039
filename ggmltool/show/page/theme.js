/* Light and dark: the system's choice until the reader makes one; paper is always light. */

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const theme = { chosen: null, printing: false, listeners: [] };

function isDark() {
  if (theme.printing) return false;
  return theme.chosen === null ? prefersDark.matches : theme.chosen === "dark";
}

function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  const button = byId("theme");
  button.setAttribute("aria-pressed", String(isDark()));
  paints.clear();
  theme.listeners.forEach((listener) => listener());
}

function switchTheme() {
  theme.chosen = isDark() ? "light" : "dark";
  applyTheme();
}

const paints = new Map();

/** A color of the style sheet, for canvases. */
function paint(variable) {
  let color = paints.get(variable);
  if (color === undefined) {
    color = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
    paints.set(variable, color);
  }
  return color;
}

/** The tint of a backend under text: its pale color by day, its ink in the dark at night. */
function tint(backend, strength = 1) {
  if (!isDark()) return strength === 1 ? backend.fill : mixed(backend.fill, backend.ink, 0.18);
  return mixed(paint("--paper"), backend.ink, strength === 1 ? 0.34 : 0.46);
}

const mixes = new Map();

function mixed(from, to, share) {
  const key = from + to + share;
  let color = mixes.get(key);
  if (color === undefined) {
    const [a, b] = [channels(from), channels(to)];
    color = `rgb(${a.map((x, i) => Math.round(x + (b[i] - x) * share)).join(" ")})`;
    mixes.set(key, color);
  }
  return color;
}

function channels(hex) {
  return [1, 3, 5].map((i) => Number.parseInt(hex.slice(i, i + 2), 16));
}

/** A square in the color of a backend, and its name. */
function backendChip(model, b) {
  const of = model.backends[b];
  if (!of) return el("span", { class: "quiet", text: "none" });
  const square = el("span", { class: "swatch", "aria-hidden": "true" });
  square.style.setProperty("--of", of.ink);
  return el("span", { class: "backend" }, square, el("bdi", { text: of.name }));
}
