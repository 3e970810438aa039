/* The memory map: each chunk of each compute buffer, offsets over program order, and beside it what is there now. */

const GUTTER = 66;
const NOW = 92;
const NOW_NARROW = 46;
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

class MemoryMap {
  /** The map of a report inside `root`; maps of two reports share the `span` of x. */
  constructor(root, model, side, span, asks) {
    Object.assign(this, { root, model, side, span, asks });
    this.redraw = perFrame("map", () => this.draw());
    this.overview = this.canvas("overview", 34);
    this.ruler = this.canvas("ruler", 36);
    this.lanes = model.lanes.map((lane) => this.makeLane(lane));
    this.axis = this.canvas("axis", 20);
    if (model.lanes.length === 0) root.append(el("p", { class: "quiet", text: "Nothing was allocated." }));
    fill(root, [this.overview, this.ruler, this.lanes.map((lane) => lane.figure), this.axis, ...root.childNodes]);
    this.listen();
  }

  canvas(of, height) {
    const canvas = el("canvas", { class: of, "aria-hidden": "true" });
    canvas.tall = height;
    return canvas;
  }

  makeLane(lane) {
    const { model } = this;
    const { buffer } = lane;
    const largest = Math.max(...model.lanes.map((other) => other.size));
    const tall = model.lanes.length > 4 ? 170 : 250;
    const chunk = lane.of > 1 ? `, chunk ${lane.chunk}` : "";
    const title = `${clean(buffer.buft)} compute buffer${chunk}`;
    const canvas = el("canvas", { class: "lane", tabindex: "0", role: "application", "aria-roledescription": "memory map" });
    canvas.tall = lane.size < largest / 12 ? Math.round(tall * 0.6) : tall;
    const caption = el("figcaption", {}, this.captionOf(lane, title));
    const made = { lane, title, canvas, span: new Span(lane.size, Math.max(lane.size / 4096, 1)) };
    made.figure = el("figure", { class: "lane-figure" }, caption, canvas);
    gestures(canvas, {
      zoom: (factor, x, y, event) => this.zoomed(made, factor, x, y, event),
      pan: (dx, dy) => this.panned(made, dx, dy),
      click: (x, y) => this.clicked(made, x, y),
      hover: (x, y, event) => this.hovered(made, x, y, event),
      leave: () => tooltip.hide(),
    });
    canvas.addEventListener("dblclick", () => this.zoomToSelected());
    canvas.addEventListener("keydown", (event) => this.key(made, event));
    return made;
  }

  captionOf({ buffer, chunk, size, of }, title) {
    const { peak } = buffer;
    const square = el("span", { class: "swatch", "aria-hidden": "true" });
    square.style.setProperty("--of", (this.model.backends[buffer.backend] || { ink: "gray" }).ink);
    const parts = [square, el("strong", { text: title }), el("span", { class: "number", text: bytes(of > 1 ? size : buffer.size) })];
    if (peak && chunk === 0) {
      const where = peak.step < 0 ? "before the first node" : `at ${this.stepName(peak.step)}`;
      parts.push(el("button", {
        class: "link", type: "button", text: `fullest ${where}: ${bytes(peak.nbytes)}`,
        onclick: () => store.set({ side: this.side, event: this.model.eventAtColumn(peak.step) }),
      }));
    }
    const lower = this.lower(chunk, buffer, size);
    if (lower) parts.push(el("button", { class: "link", type: "button", text: `see the lower ${bytes(lower)}`, onclick: () => this.seeLower(buffer, chunk, lower) }));
    if (buffer.max_size) parts.push(el("span", { class: "quiet", text: `a chunk has at most ${bytes(buffer.max_size)}` }));
    return parts;
  }

  /** The height below which nearly all blocks of a chunk are, if they are small beside the chunk. */
  lower(chunk, buffer, size) {
    const { blocks } = this.model.lanes.find((lane) => lane.buffer === buffer && lane.chunk === chunk);
    const tops = blocks.map((block) => block.offset + block.size).sort((a, b) => a - b);
    const top = tops[Math.floor(tops.length * 0.95)] || 0;
    return top > 0 && top * 5 < size ? Math.min(top * 1.05, size) : 0;
  }

  seeLower(buffer, chunk, top) {
    const made = this.lanes.find(({ lane }) => lane.buffer === buffer && lane.chunk === chunk);
    if (made.span.isWhole) made.span.see(0, top);
    else made.span.whole();
    this.redraw();
  }

  stepName(column) {
    const t = this.model.tensors[this.model.order[column]];
    return t ? t.shown : "the start";
  }

  listen() {
    const drag = (event) => {
      const x = event.offsetX - GUTTER;
      const middle = (x / this.plot) * this.span.size;
      this.span.see(middle - (this.span.to - this.span.from) / 2, this.span.to - this.span.from);
      this.asks();
    };
    this.overview.addEventListener("pointerdown", (event) => {
      this.overview.setPointerCapture(event.pointerId);
      drag(event);
    });
    this.overview.addEventListener("pointermove", (event) => event.buttons === 1 && drag(event));
    for (const canvas of [this.ruler, this.axis]) {
      canvas.addEventListener("pointerdown", (event) => this.seek(event));
      canvas.addEventListener("pointermove", (event) => (event.buttons === 1 ? this.seek(event) : this.rulerHovered(event)));
      canvas.addEventListener("pointerleave", () => tooltip.hide());
    }
    new ResizeObserver(() => this.redraw()).observe(this.root);
  }

  seek(event) {
    const column = this.model.columnAt(this.unitsAt(event.offsetX));
    store.set({ side: this.side, event: this.model.eventAtColumn(column) });
  }

  rulerHovered(event) {
    const t = this.model.tensors[this.model.order[this.model.columnAt(this.unitsAt(event.offsetX))]];
    if (!t) return tooltip.hide();
    const split = t.split >= 0 ? `, split ${t.split}` : "";
    return tooltip.show(event, el("strong", { text: t.shown }), `${t.op} ${t.shape}`, `step ${t.column}${split}`);
  }

  get plot() {
    return Math.max(this.width - GUTTER - this.nowWidth - 10, 40);
  }

  get nowWidth() {
    return this.width < 620 ? NOW_NARROW : NOW;
  }

  unitsAt(px) {
    return this.span.from + ((px - GUTTER) / this.plot) * (this.span.to - this.span.from);
  }

  px(units) {
    return GUTTER + ((units - this.span.from) / (this.span.to - this.span.from)) * this.plot;
  }

  zoomed(made, factor, x, y, event) {
    if (event.altKey || x < GUTTER) made.span.zoom(factor, this.offsetAt(made, y));
    else this.span.zoom(factor, this.unitsAt(x));
    this.asks();
  }

  panned(made, dx, dy) {
    this.span.move((-dx / this.plot) * (this.span.to - this.span.from));
    made.span.move((dy / made.canvas.tall) * (made.span.to - made.span.from));
    tooltip.hide();
    this.asks();
  }

  offsetAt(made, y) {
    return made.span.to - (y / made.canvas.tall) * (made.span.to - made.span.from);
  }

  y(made, offset) {
    return ((made.span.to - offset) / (made.span.to - made.span.from)) * made.canvas.tall;
  }

  /** What is drawn at a place of a lane: a block, or null. */
  at(made, x, y) {
    const offset = this.offsetAt(made, y);
    const has = (block) => block.offset <= offset && offset < block.offset + block.size;
    if (x > GUTTER + this.plot + 6) return this.model.live(made.lane, this.event).find(has) || null;
    if (x < GUTTER) return null;
    const units = this.unitsAt(x);
    return made.lane.blocks.findLast((block) => has(block) && this.left(block) <= units && units < this.right(block)) || null;
  }

  get event() {
    return this.side === store.side ? store.event : this.model.eventAtColumn(store.model.columnOfEvent(store.event));
  }

  left(block) {
    return block.start < 0 ? 0 : this.model.xs[block.start + 1];
  }

  right(block) {
    return this.model.xs[block.end < 0 ? this.model.columns + 1 : Math.max(block.end, block.start) + 2];
  }

  clicked(made, x, y) {
    const block = this.at(made, x, y);
    made.canvas.focus({ preventScroll: true });
    if (block) store.set({ side: this.side, tensor: block.tensor });
    else store.set({ tensor: -1 });
  }

  hovered(made, x, y, event) {
    const block = this.at(made, x, y);
    made.canvas.style.cursor = block ? "pointer" : "";
    if (!block) return tooltip.hide();
    const t = this.model.tensors[block.tensor];
    const lines = [el("strong", { text: t.shown }), `${t.op} ${t.shape}`.trim(), `${bytes(block.size)} at offset ${integer(block.offset)}`];
    lines.push(this.whenOf(block));
    if (t.kind === 2) lines.push(`copy of ${this.model.tensors[t.src[0]].shown}`);
    if (block.took >= 0) lines.push(`computed in place of ${this.model.tensors[this.model.blocks[block.took].tensor].shown}`);
    if (block.kept) lines.push("kept: a graph output");
    return tooltip.show(event, ...lines);
  }

  whenOf(block) {
    const from = block.start < 0 ? "from the start" : `from ${this.stepName(block.start)}`;
    return `${from} ${block.end < 0 ? "to the end" : `to ${this.stepName(block.end)}`}`;
  }

  key(made, event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const middle = (this.span.from + this.span.to) / 2;
    const width = this.span.to - this.span.from;
    const act = {
      "+": () => this.span.zoom(0.7, this.cursor(middle)), "=": () => this.span.zoom(0.7, this.cursor(middle)),
      w: () => this.span.zoom(0.7, this.cursor(middle)), "-": () => this.span.zoom(1 / 0.7, middle),
      s: () => this.span.zoom(1 / 0.7, middle), a: () => this.span.move(-width / 6), d: () => this.span.move(width / 6),
      W: () => made.span.zoom(0.7, this.offsetOfChoice(made)), S: () => made.span.zoom(1 / 0.7, this.offsetOfChoice(made)),
      0: () => this.seeAll(), z: () => this.zoomToSelected(),
      ArrowUp: () => this.chooseNext(made, 1), ArrowDown: () => this.chooseNext(made, -1),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
    this.asks();
  }

  cursor(otherwise) {
    const x = this.model.xs[this.model.columnOfEvent(this.event) + 1];
    return x >= this.span.from && x <= this.span.to ? x : otherwise;
  }

  offsetOfChoice(made) {
    const block = made.lane.blocks.find((of) => of.tensor === store.tensor);
    return block ? block.offset + block.size / 2 : (made.span.from + made.span.to) / 2;
  }

  /** Chooses the block above or below the chosen one, of those that live now. */
  chooseNext(made, step) {
    const live = this.model.live(made.lane, this.event);
    if (live.length === 0) return;
    const now = live.findIndex((block) => block.tensor === store.tensor);
    const next = now < 0 ? (step > 0 ? 0 : live.length - 1) : clamp(now + step, 0, live.length - 1);
    store.set({ side: this.side, tensor: live[next].tensor });
  }

  seeAll() {
    this.span.whole();
    this.lanes.forEach((made) => made.span.whole());
  }

  zoomToSelected() {
    for (const made of this.lanes) {
      const blocks = made.lane.blocks.filter((block) => block.tensor === store.tensor);
      if (blocks.length === 0) continue;
      const from = Math.min(...blocks.map((block) => this.left(block)));
      const to = Math.max(...blocks.map((block) => this.right(block)));
      const width = Math.max((to - from) * 1.6, this.span.least);
      this.span.see((from + to - width) / 2, Math.min(width, this.span.size));
      const tall = clamp(blocks[0].size * 3, made.span.least, made.span.size);
      made.span.see(blocks[0].offset + blocks[0].size / 2 - tall / 2, tall);
    }
    this.asks();
  }

  /** Moves the map as little as shows the chosen tensor. */
  reveal() {
    if (this.side !== store.side || store.tensor < 0 || this.span.isWhole) return;
    const of = this.model.tensors[store.tensor].blocks.map((b) => this.model.blocks[b]);
    if (of.length) this.span.reveal(this.left(of[0]), Math.min(this.right(of[0]), this.left(of[0]) + (this.span.to - this.span.from) / 2));
  }

  /** Says in words what a lane shows. */
  describe({ canvas, lane, title }) {
    const live = this.model.live(lane, this.event);
    const used = live.reduce((n, block) => n + block.size, 0);
    canvas.setAttribute("aria-label", `${title}, ${bytes(lane.size)}: now ${count(live.length, "tensor")} in ${bytes(used)}. ` +
      "Up and down choose a tensor that has memory now, W and S zoom, A and D move. The table below has the same.");
  }

  draw() {
    this.width = theme.printing ? PAPER : this.root.clientWidth;
    if (!this.width) return;
    this.related = this.relatedOf(store.side === this.side ? store.tensor : -1);
    this.drawOverview();
    this.drawRuler();
    this.lanes.forEach((made) => this.drawLane(made));
    this.drawAxis();
  }

  /** Tensors that are outlined: the chosen one and its copies; and its sources. */
  relatedOf(tensor) {
    if (tensor < 0) return { own: new Set(), sources: new Set() };
    const t = this.model.tensors[tensor];
    const root = t.viewOf >= 0 ? [t.viewOf] : [];
    const reads = t.reads.length ? t.reads : t.src;
    return { own: new Set([tensor, ...t.copies, ...(t.blocks.length ? [] : root)]), sources: new Set(t.kind === 2 ? [] : reads) };
  }

  drawOverview() {
    const ctx = context(this.overview, this.width, this.overview.tall);
    const tall = this.overview.tall - 4;
    const profile = this.profile();
    const most = Math.max(...profile, 1);
    const { xs } = this.model;
    ctx.fillStyle = paint("--profile");
    ctx.beginPath();
    ctx.moveTo(GUTTER, tall);
    profile.forEach((n, c) => {
      const [x0, x1] = [xs[c], xs[c + 1]].map((x) => GUTTER + (x / this.span.size) * this.plot);
      const y = tall - (n / most) * (tall - 4);
      ctx.lineTo(x0, y);
      ctx.lineTo(x1, y);
    });
    ctx.lineTo(GUTTER + (xs[xs.length - 1] / this.span.size) * this.plot, tall);
    ctx.fill();
    ctx.fillStyle = paint("--quiet");
    ctx.font = FONT;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.fillText("in use", GUTTER - 8, tall / 2 + 2);
    if (this.span.isWhole) return;
    const [a, b] = [this.span.from, this.span.to].map((x) => GUTTER + (x / this.span.size) * this.plot);
    ctx.fillStyle = paint("--window");
    ctx.fillRect(a, 1, Math.max(b - a, 2), tall);
    ctx.strokeStyle = paint("--accent");
    ctx.strokeRect(Math.round(a) + 0.5, 0.5, Math.max(Math.round(b - a), 2), tall);
  }

  /** The bytes of all compute buffers that are in use at each column. */
  profile() {
    if (this.used) return this.used;
    const used = new Float64Array(this.model.columns + 2);
    for (const block of this.model.blocks) {
      used[block.start + 1] += block.size;
      used[(block.end < 0 ? this.model.columns : Math.max(block.end, block.start) + 1) + 1] -= block.size;
    }
    for (let c = 1; c < used.length; c++) used[c] += used[c - 1];
    this.used = Array.from(used.subarray(0, this.model.columns + 1));
    return this.used;
  }

  drawRuler() {
    const ctx = context(this.ruler, this.width, this.ruler.tall);
    this.clip(ctx, this.ruler.tall);
    const { model } = this;
    ctx.font = FONT;
    ctx.textBaseline = "alphabetic";
    this.drawLayers(ctx);
    const from = Math.max(model.columnAt(this.span.from), 0);
    const to = Math.min(model.columnAt(this.span.to) + 1, model.columns - 1);
    this.drawStrip(ctx, from, to);
    ctx.restore();
    this.drawCursor(ctx, this.ruler.tall, true);
    ctx.fillStyle = paint("--quiet");
    ctx.textAlign = "right";
    ctx.fillText("runs on", GUTTER - 8, 29);
  }

  /** A tick where a layer begins, and the numbers of as many as there is room for. */
  drawLayers(ctx) {
    const { layers, xs } = this.model;
    if (layers.length === 1) return;
    const places = layers.map((run) => this.px(xs[this.firstColumn(run.start) + 1]));
    places.push(this.px(xs[this.model.columns + 1]));
    const numbered = layers.filter((run) => run.layer >= 0).length || 1;
    const apart = (places[layers.length] - places[0]) / layers.length;
    const every = apart > 54 || numbered < 4 ? 1 : nice(24 / apart);
    let free = GUTTER;
    layers.forEach((run, i) => {
      const [x, end] = [places[i], places[i + 1]];
      if (end < GUTTER || x > GUTTER + this.plot) return;
      ctx.fillStyle = paint("--line");
      if (apart > 3 || run.layer % every === 0) ctx.fillRect(Math.round(x), 14, 1, this.ruler.tall);
      if (run.layer < 0 || run.layer % every !== 0) return;
      const from = Math.max(x + 3, GUTTER + 2);
      const text = end - from > measured(ctx, `layer ${run.layer}`) + 6 ? `layer ${run.layer}` : String(run.layer);
      if (from < free || (from > x + 3 && measured(ctx, text) > end - from)) return;
      ctx.fillStyle = paint("--quiet");
      ctx.textAlign = "left";
      ctx.fillText(text, from, 12);
      free = from + measured(ctx, text) + 8;
    });
  }

  firstColumn(number) {
    const t = this.model.program[number];
    if (t === undefined) return this.model.columns;
    const { column } = this.model.tensors[t];
    let c = column < 0 ? number : column;
    while (c > 0 && number > 0 && this.model.order.length && this.model.isHelper(this.model.order[c - 1])) c--;
    return c;
  }

  /** The backend of each step, as a strip; steps of one backend are one rectangle. */
  drawStrip(ctx, from, to) {
    const { model } = this;
    let begin = from;
    const of = (c) => (model.order.length ? model.backendAt(this.ownerOf(c), this.event) : -1);
    let backend = of(from);
    for (let c = from + 1; c <= to + 1; c++) {
      const next = c > to ? -2 : of(c);
      if (next === backend) continue;
      const [x0, x1] = [this.px(model.xs[begin + 1]), this.px(model.xs[c + 1])];
      ctx.fillStyle = backend < 0 ? paint("--line") : model.backends[backend].ink;
      ctx.fillRect(x0, 20, Math.max(x1 - x0, 0.75), 10);
      [begin, backend] = [c, next];
    }
  }

  /** The node that a step is, or is there for. */
  ownerOf(column) {
    let c = column;
    while (c < this.model.order.length - 1 && this.model.isHelper(this.model.order[c])) c++;
    return this.model.order[c];
  }

  clip(ctx, tall) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER, 0, this.plot, tall);
    ctx.clip();
  }

  drawLane(made) {
    const { canvas, lane } = made;
    const tall = canvas.tall;
    this.describe(made);
    const ctx = context(canvas, this.width, tall);
    ctx.font = FONT;
    ctx.fillStyle = paint("--plot");
    ctx.fillRect(GUTTER, 0, this.plot, tall);
    this.drawGrid(ctx, made);
    this.clip(ctx, tall);
    const view = { ctx, made, x0: this.span.from, x1: this.span.to, event: this.event, past: this.event < this.model.lastEvent };
    view.reset = this.model.lastReset(2, view.event);
    for (const block of lane.blocks) this.drawBlock(view, block);
    for (const block of lane.blocks) this.outline(view, block);
    this.drawMarks(ctx, tall);
    ctx.restore();
    this.drawCursor(ctx, tall, false);
    this.drawNow(ctx, made);
  }

  drawGrid(ctx, made) {
    const { from, to } = made.span;
    const tall = made.canvas.tall;
    const step = 2 ** Math.ceil(Math.log2(Math.max((to - from) / (tall / 44), 1)));
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    for (let offset = Math.ceil(from / step) * step; offset <= to; offset += step) {
      const y = this.y(made, offset);
      ctx.fillStyle = paint("--grid");
      ctx.fillRect(GUTTER, Math.round(y), this.plot, 1);
      ctx.fillStyle = paint("--quiet");
      ctx.fillText(bytes(offset), GUTTER - 8, clamp(y, 7, tall - 7));
    }
  }

  boxOf(view, block) {
    const left = this.left(block);
    const right = this.right(block);
    if (right < view.x0 || left > view.x1) return null;
    const y0 = this.y(view.made, block.offset + block.size);
    const y1 = this.y(view.made, block.offset);
    if (y1 < 0 || y0 > view.made.canvas.tall) return null;
    const x0 = Math.max(this.px(left), GUTTER - 4);
    const x1 = Math.min(this.px(right), GUTTER + this.plot + 4);
    return [x0, y0, Math.max(x1 - x0, 0.6), Math.max(y1 - y0, 0.6)];
  }

  drawBlock(view, block) {
    const box = this.boxOf(view, block);
    if (!box) return;
    const { ctx } = view;
    const [x, y, w, h] = box;
    const t = this.model.tensors[block.tensor];
    const unborn = view.past && block.born > view.event;
    ctx.globalAlpha = !view.past || this.model.isLive(block, view.event, view.reset) ? 1 : unborn ? 0.26 : 0.5;
    ctx.fillStyle = this.colorOf(t, block.i);
    ctx.fillRect(x, y, w, h);
    if (w > 3 && h > 3) {
      ctx.strokeStyle = paint("--edge");
      ctx.lineWidth = 0.75;
      ctx.strokeRect(x + 0.4, y + 0.4, w - 0.8, h - 0.8);
      if (block.took >= 0) this.drawTaken(ctx, x, y, h);
    }
    if (w > 30 && h > 11 && !unborn) this.label(ctx, t.shown, x, y, w, h);
    ctx.globalAlpha = 1;
  }

  drawTaken(ctx, x, y, h) {
    ctx.fillStyle = paint("--taken");
    for (let at = y + 1; at < y + h - 2; at += 5) ctx.fillRect(x, at, 1.5, Math.min(3, y + h - at));
  }

  label(ctx, text, x, y, w, h) {
    const seen = Math.max(x, GUTTER);
    const room = Math.min(x + w, GUTTER + this.plot) - seen - 10;
    const said = room > 14 ? fitted(ctx, text, room) : "";
    if (!said) return;
    ctx.fillStyle = paint("--on-tint");
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText(said, seen + 5, y + Math.min(h / 2, Math.max(h - 8, 8)));
  }

  /** Results have the color of their backend, copies that of the one they come from, inputs none. */
  colorOf(t, parity) {
    if (t.kind === 2) {
      const from = this.model.backends[this.model.tensors[t.src[0]].backend];
      return from ? tint(from, parity % 2 ? 1 : 2) : paint("--leaf");
    }
    const backend = t.kind === 0 && this.model.backends[t.backend];
    return backend ? tint(backend, parity % 2 ? 1 : 2) : paint(parity % 2 ? "--leaf" : "--leaf-2");
  }

  outline(view, block) {
    const own = this.related.own.has(block.tensor);
    const source = this.related.sources.has(block.tensor);
    const hit = store.side === this.side && store.hits !== null && store.hits.has(block.tensor);
    if (!own && !source && !hit) return;
    const box = this.boxOf(view, block);
    if (!box) return;
    const [x, y, w, h] = box;
    const { ctx } = view;
    ctx.lineWidth = own ? 2.5 : 1.5;
    ctx.strokeStyle = paint(own ? "--accent" : source ? "--source" : "--hit");
    ctx.setLineDash(source && !own ? [4, 3] : []);
    ctx.strokeRect(x, y, Math.max(w, 2), Math.max(h, 2));
    ctx.setLineDash([]);
  }

  /** Where two reports begin to differ. */
  drawMarks(ctx, tall) {
    if (this.mark === undefined || this.mark < 0) return;
    const x = Math.round(this.px(this.model.xs[this.mark + 1]));
    ctx.fillStyle = paint("--differs");
    ctx.fillRect(x - 1, 0, 2, tall);
  }

  drawCursor(ctx, tall, withHandle) {
    const column = this.model.columnOfEvent(this.event);
    const x = this.px((this.model.xs[column + 1] + this.model.xs[column + 2]) / 2);
    if (x < GUTTER - 1 || x > GUTTER + this.plot + 1) return;
    ctx.fillStyle = paint("--cursor");
    ctx.fillRect(Math.round(x), withHandle ? 16 : 0, 1, tall);
    if (!withHandle) return;
    ctx.beginPath();
    ctx.moveTo(x - 4, 13);
    ctx.lineTo(x + 5, 13);
    ctx.lineTo(x + 0.5, 19);
    ctx.fill();
  }

  /** What has the memory right after the event, and between hatches what is free. */
  drawNow(ctx, made) {
    const x = GUTTER + this.plot + 10;
    const w = this.nowWidth - 2;
    const tall = made.canvas.tall;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, 0, w, tall);
    ctx.clip();
    ctx.fillStyle = paint("--plot");
    ctx.fillRect(x, 0, w, tall);
    for (const [offset, size] of this.model.free(made.lane, this.event)) this.hatch(ctx, made, x, w, offset, size);
    for (const block of this.model.live(made.lane, this.event)) {
      const t = this.model.tensors[block.tensor];
      const y = this.y(made, block.offset + block.size);
      const h = Math.max(this.y(made, block.offset) - y, 0.6);
      ctx.fillStyle = this.colorOf(t, block.i);
      ctx.fillRect(x, y, w, h);
      ctx.lineWidth = this.related.own.has(t.i) ? 2.5 : 0.75;
      ctx.strokeStyle = paint(this.related.own.has(t.i) ? "--accent" : "--edge");
      if (h > 3) ctx.strokeRect(x + 1, y, w - 2, h);
      if (h > 11) this.labelNow(ctx, t.shown, x, y, w, h);
    }
    ctx.restore();
  }

  labelNow(ctx, text, x, y, w, h) {
    ctx.fillStyle = paint("--on-tint");
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText(fitted(ctx, text, w - 8), x + 4, y + h / 2);
  }

  hatch(ctx, made, x, w, offset, size) {
    const y = this.y(made, offset + size);
    const h = this.y(made, offset) - y;
    if (h < 2) return;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, Math.max(y, 0), w, Math.min(h, made.canvas.tall));
    ctx.clip();
    ctx.strokeStyle = paint("--hatch");
    ctx.lineWidth = 1;
    ctx.beginPath();
    const top = Math.max(y, 0);
    const low = Math.min(y + h, made.canvas.tall);
    for (let at = Math.floor(top / 7) * 7 - w; at < low; at += 7) {
      ctx.moveTo(x, at + w);
      ctx.lineTo(x + w, at);
    }
    ctx.stroke();
    if (low - top > 15) {
      const text = fitted(ctx, `${bytes(size)} free`, w - 8);
      ctx.fillStyle = paint("--plot");
      ctx.fillRect(x + 2, (top + low) / 2 - 7, measured(ctx, text) + 5, 14);
      ctx.fillStyle = paint("--quiet");
      ctx.textAlign = "left";
      ctx.textBaseline = "middle";
      ctx.fillText(text, x + 4, (top + low) / 2);
    }
    ctx.restore();
  }

  drawAxis() {
    const ctx = context(this.axis, this.width, this.axis.tall);
    ctx.font = FONT;
    ctx.textBaseline = "top";
    ctx.fillStyle = paint("--quiet");
    const width = this.span.to - this.span.from;
    const step = nice(width / (this.plot / 80));
    let free = GUTTER - 1;
    for (let column = Math.floor(this.span.from / step) * step - step; column <= this.span.to; column += step) {
      const isStart = column < 0;
      const text = isStart ? "start" : integer(column);
      const at = this.px(isStart ? 0 : column + 1);
      if (at < free || at + measured(ctx, text) > GUTTER + this.plot) continue;
      ctx.fillRect(Math.round(at), 0, 1, 4);
      ctx.textAlign = "left";
      ctx.fillText(text, at + 3, 4);
      free = at + measured(ctx, text) + 14;
    }
    ctx.textAlign = "right";
    ctx.fillText(store.sides.length > 1 ? "node" : "step", GUTTER - 8, 4);
    ctx.textAlign = "left";
    ctx.fillText("now", GUTTER + this.plot + 10, 4);
  }
}

/** A round step, at least `least`: 1, 2 or 5 times a power of ten. */
function nice(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least) || power;
}
