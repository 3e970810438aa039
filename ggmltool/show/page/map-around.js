/* Where steps and offsets are on a memory map, and what stands around it: the bytes in use as an overview, layers and
   backends above, steps below. */

const GUTTER = 66;
const NOW = 92;
const NOW_NARROW = 46;
/** The part of a lane's height below a bend of its scale, as in the drawings of `buffers`. */
const BEND_AT = 0.7;
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

class MapAround {
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

  /** How high an offset lies, of the lane's size: the offset itself, but where the scale changes at a bend. */
  rise({ lane, bend }, offset) {
    if (!bend) return offset;
    if (offset <= bend) return (BEND_AT * lane.size * offset) / bend;
    return lane.size * (BEND_AT + ((1 - BEND_AT) * (offset - bend)) / (lane.size - bend));
  }

  riseAt(made, y) {
    return made.span.to - (y / made.canvas.tall) * (made.span.to - made.span.from);
  }

  offsetAt(made, y) {
    const { lane, bend } = made;
    const rise = this.riseAt(made, y);
    if (!bend) return rise;
    const part = rise / lane.size;
    return part <= BEND_AT ? (bend * part) / BEND_AT : bend + ((lane.size - bend) * (part - BEND_AT)) / (1 - BEND_AT);
  }

  y(made, offset) {
    return ((made.span.to - this.rise(made, offset)) / (made.span.to - made.span.from)) * made.canvas.tall;
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
