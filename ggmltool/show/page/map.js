/* The memory map: each chunk of each compute buffer, offsets over program order, and beside it what is there now. */

const LINEAR = "one scale for all of it";
const BENT = "change the scale where little is in use";

class MemoryMap extends MapDrawing {
  /** The map of a report inside `root`; maps of two reports share the `span` of x. */
  constructor(root, model, side, span, asks) {
    super();
    Object.assign(this, { root, model, side, span, asks });
    this.redraw = perFrame("map", () => this.draw());
    this.overview = this.canvas("overview", 34);
    this.ruler = this.canvas("ruler", 36);
    this.lanes = model.lanes.map((lane) => this.makeLane(lane));
    this.axis = this.canvas("axis", 20);
    if (model.lanes.length === 0) fill(root, el("p", { class: "quiet nothing", text: "Nothing was allocated." }));
    else
      fill(
        root,
        this.overview,
        this.ruler,
        this.lanes.map((lane) => lane.figure),
        this.axis,
      );
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
    const canvas = el("canvas", {
      class: "lane",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "memory map",
    });
    canvas.tall = lane.size < largest / 12 ? Math.round(tall * 0.6) : tall;
    const caption = el("figcaption", {}, this.captionOf(lane, title));
    const made = { lane, title, canvas, bend: lane.bend, span: new Span(lane.size, Math.max(lane.size / 4096, 1)) };
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

  captionOf(lane, title) {
    const { buffer, chunk, size, of } = lane;
    const { peak } = buffer;
    const square = el("span", { class: "swatch", "aria-hidden": "true" });
    square.style.setProperty("--of", (this.model.backends[buffer.backend] || { ink: "gray" }).ink);
    const parts = [
      square,
      el("strong", { text: title }),
      el("span", { class: "number", text: bytes(of > 1 ? size : buffer.size) }),
    ];
    if (peak && chunk === 0) {
      const where = peak.step < 0 ? "before the first node" : `at ${this.stepName(peak.step)}`;
      parts.push(
        el("button", {
          class: "link",
          type: "button",
          text: `fullest ${where}: ${bytes(peak.nbytes)}`,
          onclick: () => store.set({ side: this.side, event: this.model.eventAtColumn(peak.step) }),
        }),
      );
    }
    if (lane.bend)
      parts.push(
        el("button", {
          class: "link scale",
          type: "button",
          text: LINEAR,
          onclick: (event) => this.changeScale(lane, event.currentTarget),
        }),
      );
    if (buffer.max_size)
      parts.push(el("span", { class: "quiet", text: `a chunk has at most ${bytes(buffer.max_size)}` }));
    return parts;
  }

  /** From a scale that changes at the bend to one that does not, and back; all of the lane is seen. */
  changeScale(lane, button) {
    const made = this.lanes.find((one) => one.lane === lane);
    made.bend = made.bend ? 0 : lane.bend;
    button.textContent = made.bend ? LINEAR : BENT;
    made.span.whole();
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
      canvas.addEventListener("pointermove", (event) =>
        event.buttons === 1 ? this.seek(event) : this.rulerHovered(event),
      );
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

  zoomed(made, factor, x, y, event) {
    if (event.altKey || x < GUTTER) made.span.zoom(factor, this.riseAt(made, y));
    else this.span.zoom(factor, this.unitsAt(x));
    this.asks();
  }

  panned(made, dx, dy) {
    this.span.move((-dx / this.plot) * (this.span.to - this.span.from));
    made.span.move((dy / made.canvas.tall) * (made.span.to - made.span.from));
    tooltip.hide();
    this.asks();
  }

  /** What is drawn at a place of a lane: a block, or null. */
  at(made, x, y) {
    const offset = this.offsetAt(made, y);
    const has = (block) => block.offset <= offset && offset < block.offset + block.size;
    if (x > GUTTER + this.plot + 6) return this.model.live(made.lane, this.event).find(has) || null;
    if (x < GUTTER) return null;
    const units = this.unitsAt(x);
    return (
      made.lane.blocks.findLast((block) => has(block) && this.left(block) <= units && units < this.right(block)) ||
      null
    );
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
    const lines = [
      el("strong", { text: t.shown }),
      `${t.op} ${t.shape}`.trim(),
      `${bytes(block.size)} at offset ${integer(block.offset)}`,
    ];
    lines.push(this.whenOf(block));
    if (t.kind === 2) lines.push(`copy of ${this.model.tensors[t.src[0]].shown}`);
    if (block.took >= 0)
      lines.push(`computed in place of ${this.model.tensors[this.model.blocks[block.took].tensor].shown}`);
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
      "+": () => this.span.zoom(0.7, this.cursor(middle)),
      "=": () => this.span.zoom(0.7, this.cursor(middle)),
      w: () => this.span.zoom(0.7, this.cursor(middle)),
      "-": () => this.span.zoom(1 / 0.7, middle),
      s: () => this.span.zoom(1 / 0.7, middle),
      a: () => this.span.move(-width / 6),
      d: () => this.span.move(width / 6),
      W: () => made.span.zoom(0.7, this.riseOfChoice(made)),
      S: () => made.span.zoom(1 / 0.7, this.riseOfChoice(made)),
      0: () => this.seeAll(),
      z: () => this.zoomToSelected(),
      ArrowUp: () => this.chooseNext(made, 1),
      ArrowDown: () => this.chooseNext(made, -1),
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

  riseOfChoice(made) {
    const block = made.lane.blocks.find((of) => of.tensor === store.tensor);
    return block ? this.rise(made, block.offset + block.size / 2) : (made.span.from + made.span.to) / 2;
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
      const [low, high] = [0, blocks[0].size].map((size) => this.rise(made, blocks[0].offset + size));
      const tall = clamp((high - low) * 3, made.span.least, made.span.size);
      made.span.see((low + high - tall) / 2, tall);
    }
    this.asks();
  }

  /** Moves the map as little as shows the chosen tensor. */
  reveal() {
    if (this.side !== store.side || store.tensor < 0 || this.span.isWhole) return;
    const of = this.model.tensors[store.tensor].blocks.map((b) => this.model.blocks[b]);
    if (of.length)
      this.span.reveal(
        this.left(of[0]),
        Math.min(this.right(of[0]), this.left(of[0]) + (this.span.to - this.span.from) / 2),
      );
  }
}
