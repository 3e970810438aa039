/* Elements, and numbers as people read them. Whatever comes from a file reaches the page through here, as text. */

/** An element with attributes, listeners (`onclick: f`) and children; strings become text, null is left out. */
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  return add(node, children);
}

/** Puts children into a node, in place of those that are there. */
function fill(node, ...children) {
  node.textContent = "";
  return add(node, children);
}

function add(node, children) {
  for (const child of children.flat(8)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

function byId(id) {
  return document.getElementById(id);
}

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A name as it is shown: what would be invisible, or would turn the text around, is spelled out. */
function clean(text) {
  return String(text).replace(HIDDEN, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
}

/** A sentence in which `words like these` are code. */
function withCode(text) {
  return clean(text)
    .split("`")
    .map((part, i) => (i % 2 === 0 ? part : el("code", { text: part })));
}

/** A name of a file in the middle of a sentence. */
function name(text) {
  return el("bdi", { class: "name", text: clean(text) });
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** A number of bytes with three digits, as ggmltool prints it: 71.1 MiB. */
function bytes(n) {
  if (n === null || n === undefined) return "–";
  let unit = 0;
  let x = n;
  while (Math.abs(x) >= (unit === 0 ? 1024 : 999.5) && unit < UNITS.length - 1) {
    x /= 1024;
    unit++;
  }
  return `${unit === 0 ? x : threeDigits(x)} ${UNITS[unit]}`;
}

/** Three digits, a half to the even one. */
function threeDigits(x) {
  const power = x < 9.995 ? 100 : x < 99.95 ? 10 : 1;
  const below = Math.floor(x * power);
  const rest = x * power - below;
  const up = rest > 0.5 || (rest === 0.5 && below % 2 !== 0);
  return String((below + (up ? 1 : 0)) / power);
}

/** Seconds in a unit that fits: 1.2 ms. */
function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s === 0) return "0 s";
  for (const [unit, of] of [
    ["s", 1],
    ["ms", 1e-3],
    ["µs", 1e-6],
  ])
    if (s >= of) return `${threeDigits(s / of)} ${unit}`;
  return `${threeDigits(s / 1e-9)} ns`;
}

/** A number with its noun: 1 node, 2 nodes. */
function count(n, noun, nouns) {
  return `${integer(n)} ${n === 1 ? noun : nouns || noun + "s"}`;
}

function integer(n) {
  return n.toLocaleString("en-US").replaceAll(",", "\u202f");
}

/** Calls `draw` once before the next frame, however often it is asked to; notes how long it took. */
function perFrame(label, draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      timed(label, draw);
    });
  };
}

function timed(label, work) {
  const start = performance.now();
  work();
  performance.measure(label, { start, end: performance.now() });
}

const still = matchMedia("(prefers-reduced-motion: reduce)");

/** Brings an element into sight, gently where motion is welcome. */
function show(element, block = "start") {
  element.scrollIntoView({ block, behavior: still.matches ? "auto" : "smooth" });
}

/** The first of sorted numbers, or of what `key` makes of an item, that is not below x. */
function firstFrom(sorted, x, key = (item) => item) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(sorted[middle]) < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

function clamp(x, low, high) {
  return Math.min(Math.max(x, low), high);
}
