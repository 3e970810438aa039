/* The graph: layers folded to boxes that open, splits as bands in the color of their backend, nodes, and what they read. */

const SMALL = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const STRONG = '600 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const RAIL = 12;
const OPEN_AT_FIRST = 250;

const graph = {
  scale: 1,
  x: 0,
  y: 0,

  start() {
    this.canvas = byId("graph-canvas");
    this.redraw = perFrame("graph", () => this.draw());
    gestures(this.canvas, {
      zoom: (factor, x, y) => this.zoom(1 / factor, x, y),
      pan: (dx, dy) => this.pan(dx, dy),
      click: (x, y) => this.clicked(x, y),
      hover: (x, y, event) => this.hovered(x, y, event),
      leave: () => tooltip.hide(),
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    byId("open-all").addEventListener("click", () => this.openAll(true));
    byId("fold-all").addEventListener("click", () => this.openAll(false));
    byId("graph-in").addEventListener("click", () => this.zoomAtMiddle(1.3));
    byId("graph-out").addEventListener("click", () => this.zoomAtMiddle(1 / 1.3));
    byId("graph-fit").addEventListener("click", () => this.fit());
    new ResizeObserver(() => this.redraw()).observe(this.canvas.parentElement);
    store.listen((changed) => {
      if (changed.has("side")) this.renew();
      if (changed.has("tensor") && store.tensor >= 0) this.reveal();
      this.redraw();
    });
    this.renew();
  },

  renew() {
    const { model } = store;
    const small = model.nodes <= OPEN_AT_FIRST;
    this.open = new Set(model.layers.flatMap((run, r) => (small || (run.layer < 0 && run.end - run.start <= 60) ? [r] : [])));
    this.lay();
    this.home();
  },

  lay() {
    this.layout = this.laid();
    this.redraw();
  },

  /** A layout as wide as there is room, if names are to be read. */
  laid() {
    const across = clamp(Math.floor((this.width - 40) / BOX.across / 0.85), 2, 8);
    return new Layout(store.model, this.open, across);
  },

  get width() {
    return theme.printing ? PAPER : this.canvas.parentElement.clientWidth;
  },

  get tall() {
    if (theme.printing) return clamp(this.layout.height * this.scale + 24, 200, 1300);
    return clamp(Math.min(innerHeight * 0.72, this.layout.height * this.scale + 24), 120, 900);
  },

  home() {
    this.scale = clamp((this.width - RAIL - 24) / this.layout.width, 0.55, 1.1);
    this.x = 8;
    this.y = 8;
  },

  fit() {
    this.scale = clamp(Math.min((this.width - RAIL - 16) / this.layout.width, (this.tall - 16) / this.layout.height), 0.02, 1);
    this.x = 8;
    this.y = 8;
    this.redraw();
  },

  zoom(factor, x, y) {
    const scale = clamp(this.scale * factor, 0.02, 3);
    const real = scale / this.scale;
    this.x = x - (x - this.x) * real;
    this.y = y - (y - this.y) * real;
    this.scale = scale;
    this.pan(0, 0);
  },

  zoomAtMiddle(factor) {
    this.zoom(factor, this.width / 2, this.tall / 2);
  },

  pan(dx, dy) {
    const [w, h] = [this.layout.width * this.scale, this.layout.height * this.scale];
    this.x = clamp(this.x + dx, Math.min(this.width - w - 30, 8), 40);
    this.y = clamp(this.y + dy, Math.min(this.tall - h - 30, 8), 40);
    tooltip.hide();
    this.redraw();
  },

  openAll(all) {
    this.open = new Set(all ? store.model.layers.keys() : []);
    this.lay();
    this.pan(0, 0);
  },

  toggle(r) {
    const item = this.layout.items.find((of) => of.r === r);
    const before = item.y;
    if (!this.open.delete(r)) this.open.add(r);
    this.lay();
    const now = this.layout.items.find((of) => of.r === r).y;
    this.pan(0, (before - now) * this.scale);
  },

  clicked(px, py) {
    this.canvas.focus({ preventScroll: true });
    if (px > this.width - RAIL - 6) return this.jump(py);
    const item = this.layout.at((px - this.x) / this.scale, (py - this.y) / this.scale);
    if (!item) return store.set({ tensor: -1 });
    if (item.what === "folded" || item.what === "head") return this.toggle(item.r);
    return item.what === "node" ? store.set({ tensor: item.t }) : undefined;
  },

  jump(py) {
    this.y = this.tall / 2 - (py / this.tall) * this.layout.height * this.scale;
    this.pan(0, 0);
  },

  hovered(px, py, event) {
    const { model } = store;
    const item = px > this.width - RAIL - 6 ? null : this.layout.at((px - this.x) / this.scale, (py - this.y) / this.scale);
    this.canvas.style.cursor = item && item.what !== "band" ? "pointer" : "";
    if (!item) return tooltip.hide();
    if (item.what === "node") return tooltip.show(event, ...this.aboutNode(model.tensors[item.t]));
    if (item.what === "band") return tooltip.show(event, ...this.aboutSplit(model.splits[item.split]));
    return tooltip.show(event, el("strong", { text: item.run.title }), this.aboutRun(item.run), item.what === "head" ? "click to fold" : "click to open");
  },

  aboutNode(t) {
    const { model } = store;
    const on = model.backends[t.backend];
    return [el("strong", { text: t.shown }), `${t.op} ${t.shape}, ${bytes(t.nbytes)}`, `node ${t.number} on ${on ? clean(on.name) : "no backend"}${t.cause ? ` (${t.cause})` : ""}`,
      model.plain(model.text(t.reason, { tensor: t.i, by: t.by, other: t.other }))].filter(Boolean);
  },

  aboutSplit(split) {
    const { model } = store;
    if (!split) return ["no split"];
    const why = model.plain(model.text(split.text, { tensor: split.tensor, node: split.tensor, other: split.other }));
    const copies = split.inputs.slice(0, 5).map((input) => `copies ${model.tensors[input.tensor].shown}, ${bytes(input.nbytes)}`);
    return [el("strong", { text: `split ${split.i} on ${clean(model.backends[split.backend].name)}` }), `nodes ${split.i_start} to ${split.i_end - 1}`, `begins: ${why}`, ...copies,
      split.inputs.length > 5 ? `and ${split.inputs.length - 5} more` : ""].filter(Boolean);
  },

  aboutRun(run) {
    if (run.about) return run.about;
    const { model } = store;
    const first = model.tensors[model.program[run.start]].split;
    const last = model.tensors[model.program[run.end - 1]].split;
    const inside = model.splits.slice(Math.max(first, 0), last + 1).filter((split) => split.i_start >= run.start);
    const copies = inside.reduce((n, split) => n + split.inputs.length, 0);
    const nbytes = inside.reduce((n, split) => n + split.nbytes, 0);
    const splits = first < 0 ? "" : first === last ? ` · split ${first}` : ` · splits ${first} to ${last}`;
    run.about = `${count(run.end - run.start, "node")}${splits}${copies ? ` · ${count(copies, "copy", "copies")}, ${bytes(nbytes)}` : ""}`;
    return run.about;
  },

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowDown: () => this.choose(1), ArrowUp: () => this.choose(-1), "+": () => this.zoomAtMiddle(1.3), "=": () => this.zoomAtMiddle(1.3),
      w: () => this.zoomAtMiddle(1.3), s: () => this.zoomAtMiddle(1 / 1.3), "-": () => this.zoomAtMiddle(1 / 1.3), 0: () => this.fit(),
      a: () => this.pan(80, 0), d: () => this.pan(-80, 0), PageDown: () => this.pan(0, -this.tall * 0.8), PageUp: () => this.pan(0, this.tall * 0.8),
      Home: () => this.pan(0, 1e9), End: () => this.pan(0, -1e9), Enter: () => this.toggleChosen(), z: () => this.reveal(true),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  },

  toggleChosen() {
    const t = store.model.tensors[store.tensor];
    const r = t && t.number >= 0 ? this.layout.blockOf[t.number] : (this.layout.between(-this.y / this.scale, 1e12).find((item) => item.what === "folded") || {}).r;
    if (r !== undefined) this.toggle(r);
  },

  /** Chooses the node that is computed next or before. */
  choose(by) {
    const { model, tensor } = store;
    const now = tensor >= 0 ? model.tensors[tensor].number : -1;
    const next = now < 0 ? 0 : clamp(now + by, 0, model.nodes - 1);
    if (model.nodes > 0) store.set({ tensor: model.program[next] });
  },

  /** Opens the layer of the chosen node and brings it into sight. */
  reveal(again = false) {
    const t = store.model.tensors[store.tensor];
    if (!t || t.number < 0) return;
    const r = this.layout.blockOf[t.number];
    if (!this.open.has(r)) {
      this.open.add(r);
      this.layout = this.laid();
    }
    if (again) this.scale = Math.max(this.scale, 1);
    const p = this.layout.places[t.i];
    const [x, y] = [p.x * this.scale + this.x, p.y * this.scale + this.y];
    const tall = this.tall;
    if (again || y < 20 || y + p.h * this.scale > tall - 20) this.y = tall / 2 - p.y * this.scale;
    if (x < 0 || x + p.w * this.scale > this.width - RAIL) this.x = Math.min(8, this.width / 2 - p.x * this.scale);
    this.pan(0, 0);
  },

  draw() {
    const { width, tall } = this;
    if (!width) return;
    const ctx = context(this.canvas, width, tall);
    ctx.fillStyle = paint("--plot");
    ctx.fillRect(0, 0, width, tall);
    ctx.save();
    ctx.translate(this.x, this.y);
    ctx.scale(this.scale, this.scale);
    const seen = this.layout.between(-this.y / this.scale, (tall - this.y) / this.scale);
    for (const item of seen) if (item.what === "band") this.drawBand(ctx, item);
    if (this.scale > 0.3) this.drawEdges(ctx, seen);
    this.drawChosenEdges(ctx);
    for (const item of seen) {
      if (item.what === "folded") this.drawFolded(ctx, item);
      else if (item.what === "head") this.drawHead(ctx, item);
      else for (const t of item.nodes) this.drawNode(ctx, t);
    }
    this.drawChosenBoxes(ctx);
    ctx.restore();
    this.drawRail(ctx, width, tall);
  },

  drawBand(ctx, item) {
    const { model, event } = store;
    const split = model.splits[item.split];
    const cut = split && model.isCut(item.split, event);
    const backend = cut ? model.backends[split.backend] : null;
    ctx.fillStyle = backend ? tint(backend) : paint("--leaf");
    ctx.globalAlpha = 0.35;
    ctx.fillRect(0, item.y, this.layout.width, item.h);
    ctx.globalAlpha = 1;
    ctx.fillStyle = backend ? backend.ink : paint("--line");
    ctx.fillRect(0, item.y, 4, item.h);
    if (this.scale < 0.3) return;
    ctx.fillStyle = paint("--ink");
    ctx.font = STRONG;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    const title = !split ? "" : cut ? `split ${item.split} · ${clean(model.backends[split.backend].name)}` : "not cut yet";
    const y = item.y + BAND_HEAD / 2 + 2;
    ctx.fillText(title, 14, y);
    if (!cut || split.inputs.length === 0) return;
    const at = 14 + measured(ctx, title) + 12;
    const names = split.inputs.slice(0, 4).map((input) => model.tensors[input.tensor].shown).join(", ");
    const says = item.isFirst ? `copies ${bytes(split.nbytes)}: ${names}${split.inputs.length > 4 ? ", …" : ""}` : "goes on";
    ctx.font = SMALL;
    ctx.fillStyle = paint("--quiet");
    ctx.fillText(fitted(ctx, says, this.layout.width - at - 10), at, y);
  },

  drawFolded(ctx, item) {
    const { model } = store;
    const w = this.layout.width;
    const hits = this.hitsIn(item.run);
    const own = store.tensor >= 0 && this.layout.places[store.tensor] === item;
    box(ctx, 0, item.y, w, item.h, 5);
    ctx.fillStyle = paint("--paper");
    ctx.fill();
    ctx.lineWidth = own || hits ? 2 : 1;
    ctx.strokeStyle = paint(own ? "--accent" : hits ? "--hit" : "--line");
    ctx.stroke();
    this.drawStrip(ctx, item, w);
    if (this.scale < 0.3) return;
    ctx.fillStyle = paint("--ink");
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.font = STRONG;
    ctx.fillText("▸ " + item.run.title, 12, item.y + 16);
    const at = 24 + measured(ctx, "▸ " + item.run.title);
    ctx.font = SMALL;
    ctx.fillStyle = paint("--quiet");
    const about = this.aboutRun(item.run) + (hits ? ` · ${count(hits, "hit")}` : "");
    ctx.fillText(fitted(ctx, about, w - at - 12), at, item.y + 16);
  },

  /** The backends of the nodes in a folded block, in order. */
  drawStrip(ctx, item, w) {
    const { model, event } = store;
    const { start, end } = item.run;
    const each = (w - 24) / (end - start);
    for (let i = start; i < end; i++) {
      const backend = model.backends[model.backendAt(model.program[i], event)];
      ctx.fillStyle = backend ? backend.ink : paint("--line");
      ctx.fillRect(12 + (i - start) * each, item.y + 30, Math.max(each - (each > 4 ? 1 : 0), 0.6), 6);
    }
  },

  hitsIn(run) {
    if (!store.hits) return 0;
    let n = 0;
    for (let i = run.start; i < run.end; i++) if (store.hits.has(store.model.program[i])) n++;
    return n;
  },

  drawHead(ctx, item) {
    if (this.scale < 0.2) return;
    ctx.fillStyle = paint("--ink");
    ctx.font = STRONG;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText("▾ " + item.run.title, 12, item.y + 17);
    const at = 24 + measured(ctx, "▾ " + item.run.title);
    ctx.font = SMALL;
    ctx.fillStyle = paint("--quiet");
    ctx.fillText(this.aboutRun(item.run), at, item.y + 17);
  },

  drawNode(ctx, t) {
    const { model, tensor, event, hits } = store;
    const p = this.layout.places[t];
    const of = model.tensors[t];
    const backend = model.backends[model.backendAt(t, event)];
    const own = t === tensor;
    const hit = hits !== null && hits.has(t);
    if (this.scale > 0.3) box(ctx, p.x, p.y, p.w, p.h, 4);
    else {
      ctx.beginPath();
      ctx.rect(p.x, p.y, p.w, p.h);
    }
    ctx.fillStyle = !backend ? paint("--paper") : of.viewOf >= 0 && of.size === 0 ? paint("--paper") : tint(backend, 2);
    ctx.fill();
    ctx.strokeStyle = own ? paint("--accent") : hit ? paint("--hit") : backend ? backend.ink : paint("--line");
    ctx.lineWidth = own ? 3 : hit ? 2.5 : 0.8;
    ctx.stroke();
    if (this.scale < 0.42) return;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    const plain = !backend || (of.viewOf >= 0 && of.size === 0);
    ctx.fillStyle = paint(plain ? "--ink" : "--on-tint");
    ctx.font = STRONG;
    const shape = fitted(ctx, of.op, p.w - 16);
    ctx.fillText(shape, p.x + 8, p.y + 11.5);
    const at = p.x + 8 + measured(ctx, shape) + 14;
    ctx.font = SMALL;
    ctx.textAlign = "right";
    const dims = fitted(ctx, of.shape, p.x + p.w - at);
    ctx.fillText(dims, p.x + p.w - 7, p.y + 11.5);
    ctx.textAlign = "left";
    ctx.fillText(fitted(ctx, of.shown, p.w - 16), p.x + 8, p.y + 26);
  },

  drawEdges(ctx, seen) {
    const { model } = store;
    ctx.lineWidth = 1;
    for (const dashed of [false, true]) {
      ctx.setLineDash(dashed ? [4, 3] : []);
      ctx.strokeStyle = paint(dashed ? "--copied" : "--edge-line");
      ctx.beginPath();
      for (const item of seen) if (item.what === "band") for (const t of item.nodes) this.edgesTo(ctx, model, t, dashed);
      ctx.stroke();
    }
    ctx.setLineDash([]);
  },

  edgesTo(ctx, model, t, dashed) {
    const to = this.layout.places[t];
    const { src, reads } = model.tensors[t];
    src.forEach((s, slot) => {
      const from = this.layout.places[s];
      if (!from || from === to) return;
      const copied = reads[slot] !== undefined && reads[slot] >= 0 && reads[slot] !== s;
      if (copied === dashed) curve(ctx, from, to, to.y - from.y < 420);
    });
  },

  drawChosenEdges(ctx) {
    if (store.tensor < 0) return;
    const own = this.layout.places[store.tensor];
    const t = store.model.tensors[store.tensor];
    const lines = [["--source", t.src, (p) => own && [p, own]], ["--accent", t.users, (p) => (own ? [own, p] : null)]];
    ctx.lineWidth = 2 / Math.min(this.scale, 1);
    for (const [color, of, ends] of lines) {
      ctx.strokeStyle = paint(color);
      ctx.beginPath();
      for (const s of of) {
        const p = this.layout.places[s];
        const pair = p && p !== own ? ends(p) : null;
        if (pair) curve(ctx, pair[0], pair[1], true);
      }
      ctx.stroke();
    }
  },

  /** Outlines what the chosen tensor reads and what reads it. */
  drawChosenBoxes(ctx) {
    if (store.tensor < 0) return;
    const own = this.layout.places[store.tensor];
    const t = store.model.tensors[store.tensor];
    ctx.lineWidth = 1.6 / Math.min(this.scale, 1);
    for (const [color, of] of [["--source", t.src], ["--accent", own ? [] : t.users]]) {
      ctx.strokeStyle = paint(color);
      for (const s of of) {
        const p = this.layout.places[s];
        if (!p || p.what !== "node") continue;
        box(ctx, p.x - 2, p.y - 2, p.w + 4, p.h + 4, 5);
        ctx.stroke();
      }
    }
  },

  /** The whole program at the right edge, and the part that is seen. */
  drawRail(ctx, width, tall) {
    const { model, event } = store;
    const x = width - RAIL - 2;
    const share = tall / this.layout.height;
    ctx.fillStyle = paint("--paper");
    ctx.fillRect(x - 4, 0, RAIL + 6, tall);
    for (const item of this.layout.items) {
      if (item.what === "head") continue;
      const backend = item.what === "band" ? model.backends[(model.splits[item.split] || { backend: -1 }).backend] : model.backends[model.backendAt(model.program[item.run.start], event)];
      ctx.fillStyle = backend ? backend.ink : paint("--line");
      ctx.fillRect(x, item.y * share, RAIL - 2, Math.max(item.h * share - 0.5, 0.5));
    }
    const [from, to] = [-this.y / this.scale, (tall - this.y) / this.scale].map((y) => clamp(y * share, 0, tall));
    if (from <= 0 && to >= tall) return;
    ctx.strokeStyle = paint("--accent");
    ctx.lineWidth = 2;
    ctx.strokeRect(x - 2, from + 1, RAIL + 2, Math.max(to - from - 2, 4));
  },
};

function box(ctx, x, y, w, h, radius) {
  ctx.beginPath();
  ctx.roundRect(x, y, w, h, radius);
}

/** A line from one place to another: to the right in the same line, else down; of a long one that is not wanted whole, its
 * end. */
function curve(ctx, from, to, whole) {
  if (from.what === "node" && to.what === "node" && to.x > from.x && Math.abs(to.y - from.y) < 4 * BOX.down) {
    const [x0, y0, x1, y1] = [from.x + from.w, from.y + from.h / 2, to.x, to.y + to.h / 2];
    const bend = Math.min((x1 - x0) / 2, 40);
    ctx.moveTo(x0, y0);
    ctx.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    return;
  }
  const x0 = from.what === "folded" ? 60 : from.x + from.w / 2;
  const x1 = to.what === "folded" ? 60 : to.x + to.w / 2;
  const [y0, y1] = [from.y + from.h, to.y];
  if (!whole) {
    ctx.moveTo(x1, y1 - 10);
    ctx.lineTo(x1, y1);
    return;
  }
  const bend = Math.min(Math.abs(y1 - y0) / 2, 40) + Math.abs(x1 - x0) * 0.05;
  ctx.moveTo(x0, y0);
  ctx.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
}
