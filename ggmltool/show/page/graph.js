/* The graph: layers folded to boxes that open, splits as bands in the color of their backend, nodes and what they
   read. */

const OPEN_AT_FIRST = 250;

const graph = {
  __proto__: graphDrawing,

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
    this.open = new Set(
      model.layers.flatMap((run, r) => (small || (run.layer < 0 && run.end - run.start <= 60) ? [r] : [])),
    );
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
    this.scale = clamp(
      Math.min((this.width - RAIL - 16) / this.layout.width, (this.tall - 16) / this.layout.height),
      0.02,
      1,
    );
    this.x = this.middle;
    this.y = 8;
    this.redraw();
  },

  /** Where the graph begins when it is in the middle. */
  get middle() {
    return Math.max((this.width - RAIL - this.layout.width * this.scale) / 2, 8);
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
    this.x = clamp(this.x + dx, Math.min(this.width - w - 30, 8), Math.max(40, this.middle));
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
    const item =
      px > this.width - RAIL - 6 ? null : this.layout.at((px - this.x) / this.scale, (py - this.y) / this.scale);
    this.canvas.style.cursor = item && item.what !== "band" ? "pointer" : "";
    if (!item) return tooltip.hide();
    if (item.what === "node") return tooltip.show(event, ...this.aboutNode(model.tensors[item.t]));
    if (item.what === "band") return tooltip.show(event, ...this.aboutSplit(model.splits[item.split]));
    return tooltip.show(
      event,
      el("strong", { text: item.run.title }),
      this.aboutRun(item.run),
      item.what === "head" ? "click to fold" : "click to open",
    );
  },

  aboutNode(t) {
    const { model } = store;
    const on = model.backends[t.backend];
    return [
      el("strong", { text: t.shown }),
      `${t.op} ${t.shape}, ${bytes(t.nbytes)}`,
      `node ${t.number} on ${on ? clean(on.name) : "no backend"}${t.cause ? ` (${t.cause})` : ""}`,
      model.plain(model.text(t.reason, { tensor: t.i, by: t.by, other: t.other })),
    ].filter(Boolean);
  },

  aboutSplit(split) {
    const { model } = store;
    if (!split) return ["no split"];
    const why = model.plain(model.text(split.text, { tensor: split.tensor, node: split.tensor, other: split.other }));
    const copies = split.inputs
      .slice(0, 5)
      .map((input) => `copies ${model.tensors[input.tensor].shown}, ${bytes(input.nbytes)}`);
    return [
      el("strong", { text: `split ${split.i} on ${clean(model.backends[split.backend].name)}` }),
      `nodes ${split.i_start} to ${split.i_end - 1}`,
      `begins: ${why}`,
      ...copies,
      split.inputs.length > 5 ? `and ${split.inputs.length - 5} more` : "",
    ].filter(Boolean);
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
    const copied = copies ? ` · ${count(copies, "copy", "copies")}, ${bytes(nbytes)}` : "";
    run.about = count(run.end - run.start, "node") + splits + copied;
    return run.about;
  },

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowDown: () => this.choose(1),
      ArrowUp: () => this.choose(-1),
      "+": () => this.zoomAtMiddle(1.3),
      "=": () => this.zoomAtMiddle(1.3),
      w: () => this.zoomAtMiddle(1.3),
      s: () => this.zoomAtMiddle(1 / 1.3),
      "-": () => this.zoomAtMiddle(1 / 1.3),
      0: () => this.fit(),
      a: () => this.pan(80, 0),
      d: () => this.pan(-80, 0),
      PageDown: () => this.pan(0, -this.tall * 0.8),
      PageUp: () => this.pan(0, this.tall * 0.8),
      Home: () => this.pan(0, 1e9),
      End: () => this.pan(0, -1e9),
      Enter: () => this.toggleChosen(),
      z: () => this.reveal(true),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  },

  toggleChosen() {
    const t = store.model.tensors[store.tensor];
    const r =
      t && t.number >= 0
        ? this.layout.blockOf[t.number]
        : (this.layout.between(-this.y / this.scale, 1e12).find((item) => item.what === "folded") || {}).r;
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
};
