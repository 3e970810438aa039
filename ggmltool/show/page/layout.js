/* Where the graph is drawn: blocks of layers from top to bottom, in them a band for each split, in bands nodes to the
   right of their sources. Units are those of the drawing before it is zoomed. */

const BOX = { w: 172, h: 36, across: 194, down: 46 };
const HEAD = 30;
const BAND_HEAD = 22;
const FOLDED = 44;

class Layout {
  /** `open` are the numbers of the blocks (of model.layers) that show their nodes, `across` how many stand in a row. */
  constructor(model, open, across) {
    Object.assign(this, { model, open, across, items: [], width: across * BOX.across + 10 });
    this.places = new Array(model.tensors.length);
    this.blockOf = new Int32Array(model.nodes);
    let y = 0;
    model.layers.forEach((run, r) => {
      for (let i = run.start; i < run.end; i++) this.blockOf[i] = r;
      y = open.has(r) ? this.opened(run, r, y) : this.folded(run, r, y);
      y += 8;
    });
    this.height = y;
    for (const item of this.items) item.w = this.width;
  }

  folded(run, r, y) {
    const item = { what: "folded", run, r, y, h: FOLDED };
    this.items.push(item);
    for (let i = run.start; i < run.end; i++) this.places[this.model.program[i]] = item;
    return y + FOLDED;
  }

  opened(run, r, y) {
    let below = y;
    if (this.model.layers.length > 1) {
      this.items.push({ what: "head", run, r, y, h: HEAD });
      below += HEAD;
    }
    let from = run.start;
    for (let i = run.start + 1; i <= run.end; i++) {
      const { program, tensors } = this.model;
      if (i < run.end && tensors[program[i]].split === tensors[program[from]].split) continue;
      below = this.band(program.slice(from, i), r, below);
      from = i;
    }
    return below;
  }

  band(nodes, r, y) {
    const split = this.model.tensors[nodes[0]].split;
    let below = y + BAND_HEAD + 4;
    for (const columns of this.lines(nodes)) {
      let rows = 1;
      columns.forEach((column, at) =>
        column.forEach((t, row) => {
          if (t === undefined) return;
          const place = { what: "node", t, x: 14 + at * BOX.across, y: below + row * BOX.down, w: BOX.w, h: BOX.h };
          this.places[t] = place;
          this.width = Math.max(this.width, place.x + BOX.w + 14);
          rows = Math.max(rows, row + 1);
        }),
      );
      below += rows * BOX.down;
    }
    const h = below - y - (BOX.down - BOX.h) + 10;
    const isFirst =
      this.model.splits[split] !== undefined &&
      this.model.splits[split].i_start === this.model.tensors[nodes[0]].number;
    this.items.push({ what: "band", split, r, y, h, nodes, isFirst });
    return y + h + 4;
  }

  /** Nodes of a band as they are read: each to the right of its sources, in lines as long as there is room. */
  lines(nodes) {
    const { tensors } = this.model;
    const rank = new Map();
    const row = new Map();
    const lines = [];
    for (const t of nodes) {
      const sources = tensors[t].src.concat(tensors[t].viewOf).filter((s) => rank.has(s));
      const at = Math.max(-1, ...sources.map((s) => rank.get(s))) + 1;
      rank.set(t, at);
      const line = (lines[Math.floor(at / this.across)] ??= Array.from({ length: this.across }, () => []));
      const column = line[at % this.across];
      let wished = sources.length ? Math.min(...sources.map((s) => row.get(s))) : 0;
      while (column[wished] !== undefined) wished++;
      column[wished] = t;
      row.set(t, wished);
    }
    return lines;
  }

  /** The items that are seen between two heights. */
  between(y0, y1) {
    const first = firstFrom(this.items, y0, (item) => item.y + item.h);
    const seen = [];
    for (let i = first; i < this.items.length && this.items[i].y <= y1; i++) seen.push(this.items[i]);
    return seen;
  }

  /** What is at a place: a node, a band, a head, a folded block, or null. */
  at(x, y) {
    const [item] = this.between(y, y);
    if (!item || x < 0 || x > this.width) return null;
    if (item.what !== "band") return item;
    const inside = (t) => {
      const p = this.places[t];
      return x >= p.x && x <= p.x + p.w && y >= p.y && y <= p.y + p.h;
    };
    const t = item.nodes.find(inside);
    return t === undefined ? item : this.places[t];
  }
}
