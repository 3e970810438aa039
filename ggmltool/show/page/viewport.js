/* A part of something wide that is looked at: zoomed about a place, moved, and put back. Wheel, drag and pinch. */

class Span {
  /** What is seen of 0 to `size`; not less than `least` of it. */
  constructor(size, least) {
    this.resize(size, least);
  }

  resize(size, least) {
    Object.assign(this, { size, least: Math.min(least, size), from: 0, to: size });
  }

  get isWhole() {
    return this.from <= 0 && this.to >= this.size;
  }

  zoom(factor, about) {
    const width = clamp((this.to - this.from) * factor, this.least, this.size);
    const share = (about - this.from) / (this.to - this.from);
    this.see(about - width * share, width);
  }

  move(by) {
    this.see(this.from + by, this.to - this.from);
  }

  see(from, width) {
    this.from = clamp(from, 0, this.size - width);
    this.to = this.from + width;
  }

  /** Moves as little as shows a part of it. */
  reveal(from, to) {
    const width = this.to - this.from;
    if (to - from > width) this.see(from, Math.min((to - from) * 1.1, this.size));
    else if (from < this.from) this.see(from - width * 0.1, width);
    else if (to > this.to) this.see(to - width * 0.9, width);
  }

  whole() {
    this.from = 0;
    this.to = this.size;
  }
}

/**
 * Wheel, drag and pinch on an element as calls: zoom(factor, x, y, event), pan(dx, dy), click(x, y, event), hover(x, y,
 * event), leave(). The wheel turns the page until the element has the focus, or ctrl is held.
 */
function gestures(element, { zoom, pan, click, hover, leave }) {
  const pointers = new Map();
  let moved = 0;
  const at = (event) => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  element.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== element) return;
      event.preventDefault();
      const [x, y] = at(event);
      const turned = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
      if (event.deltaX !== 0 && Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(-event.deltaX, 0);
      else
        zoom(
          Math.exp(clamp(turned, -200, 200) * (event.ctrlKey && Math.abs(turned) < 40 ? 0.01 : 0.0025)),
          x,
          y,
          event,
        );
    },
    { passive: false },
  );
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, at(event));
    moved = pointers.size > 1 ? 100 : 0;
  });
  element.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    const before = pointers.get(event.pointerId);
    if (!before) return hover(x, y, event);
    moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    if (pointers.size === 2) pinch(event.pointerId, [x, y]);
    else if (moved > 4) pan(x - before[0], y - before[1]);
    if (moved > 4 || pointers.size === 2) pointers.set(event.pointerId, [x, y]);
    return undefined;
  });
  const pinch = (id, now) => {
    const other = [...pointers].find(([key]) => key !== id)[1];
    const apart = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
    zoom(apart(pointers.get(id)) / apart(now), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2, { shiftKey: false });
  };
  const up = (event) => {
    const had = pointers.delete(event.pointerId);
    if (had && event.type === "pointerup" && moved <= 4) click(...at(event), event);
  };
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
  element.addEventListener("pointerleave", () => leave());
}

/** How wide pictures are on paper, in CSS pixels. */
const PAPER = 760;

/** Makes a canvas as fine as the screen, `width` by `height` in CSS pixels; its context, scaled. */
function context(canvas, width, height) {
  const ratio = theme.printing ? 2 : window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return ctx;
}

const lengths = new Map();

/** A text as long as it may be, with … where it was cut; "" if not even some of it fits. */
function fitted(ctx, text, room) {
  if (measured(ctx, text) <= room) return text;
  let kept = Math.floor((text.length * room) / measured(ctx, text));
  while (kept > 1 && measured(ctx, text.slice(0, kept) + "…") > room) kept--;
  return kept > 1 ? text.slice(0, kept) + "…" : "";
}

function measured(ctx, text) {
  const key = ctx.font + text;
  let length = lengths.get(key);
  if (length === undefined) {
    if (lengths.size > 50000) lengths.clear();
    length = ctx.measureText(text).width;
    lengths.set(key, length);
  }
  return length;
}

const tooltip = {
  /** Shows lines beside the pointer; each is a string or an element. */
  show(event, ...lines) {
    const box = byId("tooltip");
    fill(
      box,
      lines.map((line) => el("div", {}, line)),
    );
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const x = event.clientX + 14 + width > innerWidth ? event.clientX - width - 10 : event.clientX + 14;
    const y = event.clientY + 16 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 16;
    box.style.transform = `translate(${Math.max(x, 4)}px, ${Math.max(y, 4)}px)`;
  },

  hide() {
    byId("tooltip").hidden = true;
  },
};
