/* The document, indexed: what every part of the page asks. It knows no element. */

const KINDS_OF_TENSORS = ["node", "leaf", "copy", "other"];
const MEMORY_EVENTS = new Set(["AllocationStarted", "Allocated", "Reused", "NotReused", "Freed", "Kept"]);
const FLAGS = ["input", "output", "param", "loss"];

class Model {
  constructor(data) {
    this.data = data;
    this.backends = data.backends;
    this.strings = data.strings;
    this.nodes = data.nodes;
    this.tensors = data.tensors.map((row, i) => tensorOf(row, i, this.strings));
    this.ids = new Map(this.tensors.map((t) => [t.id, t.i]).reverse());
    this.splits = data.splits.map((row, i) => ({
      ...row,
      i,
      inputs: row.inputs.map((input) => inputOf(input, this.strings)),
    }));
    this.kinds = data.kinds;
    this.events = data.events;
    this.lastEvent = Math.max(this.events.length - 1, 0);
    this.order = data.order;
    this.columns = Math.max(this.order.length, 1);
    this.placeInOrder();
    this.findUsers();
    this.blocks = data.allocations.map(blockOf);
    this.blocks.forEach((block, i) => this.tensors[block.tensor].blocks.push(i));
    this.lanes = this.makeLanes();
    this.followEvents();
    this.layers = this.makeLayers();
    this.placeColumns(false);
  }

  placeInOrder() {
    this.order.forEach((t, column) => {
      this.tensors[t].column = column;
    });
  }

  findUsers() {
    for (const t of this.tensors) {
      if (t.kind === 2) continue;
      for (const s of new Set(t.src)) if (this.tensors[s]) this.tensors[s].users.push(t.i);
    }
    for (const t of this.tensors) {
      if (t.viewOf >= 0) this.tensors[t.viewOf].views.push(t.i);
      if (t.kind === 2 && t.src.length) this.tensors[t.src[0]].copies.push(t.i);
    }
  }

  /** The chunks of the compute buffers, each with what lies in it, in the order in which they get memory. */
  makeLanes() {
    const lanes = [];
    this.data.buffers.forEach((buffer, b) => {
      if (buffer.usage !== "compute") return;
      buffer.chunks.forEach((size, chunk) => {
        const blocks = this.blocks.filter((block) => block.buffer === b && block.chunk === chunk);
        const top = blocks.reduce((most, block) => Math.max(most, block.offset + block.size), 0);
        const bend = buffer.bends[chunk] || 0;
        lanes.push({ buffer, chunk, size: Math.max(size, top, 1), bend, blocks, of: buffer.chunks.length });
      });
    });
    return lanes;
  }

  /** For each event its column, for each tensor its events and its assignments, and where splits begin. */
  followEvents() {
    this.eventColumns = new Int32Array(this.events.length);
    this.starts = [];
    this.splitEvents = [];
    let at = -1;
    let column = -1;
    this.events.forEach((row, e) => {
      const kind = this.kinds[row[0]].name;
      const f = this.fields(e);
      if (kind === "AllocationStarted") {
        at = f.at ?? -1;
        this.starts.push(e);
      }
      if (kind === "SplitStarted") this.splitEvents.push([e, f.split]);
      const of = this.tensors[f.tensor];
      if (MEMORY_EVENTS.has(kind)) column = at;
      else if (of && of.column >= 0) column = of.column;
      this.eventColumns[e] = column;
      for (const key of ["tensor", "by", "node", "src", "dst"]) {
        const t = this.tensors[f[key]];
        if (t && t.events[t.events.length - 1] !== e) t.events.push(e);
      }
      if (of && kind === "Assigned") of.assignments.push([e, f.backend]);
    });
    this.resets = [0, 1, 2].map((what) => this.data.resets.filter(([, of]) => of === what).map(([e]) => e));
  }

  /** The nodes in the order in which they are computed, and blocks of them to be folded: layers, or repetitions. */
  makeLayers() {
    const started = Array.from({ length: this.nodes }, (_, i) => i);
    this.program = started.sort((a, b) => this.tensors[a].column - this.tensors[b].column || a - b);
    this.program.forEach((t, i) => {
      this.tensors[t].number = i;
    });
    const layers = filled(this.program.map((t) => this.tensors[t].layer));
    const runs = [];
    layers.forEach((layer, i) => {
      const last = runs[runs.length - 1];
      if (last && last.layer === layer) last.end = i + 1;
      else runs.push({ layer, title: layer < 0 ? "" : `layer ${layer}`, start: i, end: i + 1 });
    });
    return runs.length > 1 || this.data.folds.length === 0 ? this.titled(runs) : this.titled(this.repetitions());
  }

  titled(runs) {
    runs.forEach((run, i) => {
      if (run.title) return;
      run.title =
        runs.length === 1
          ? "graph"
          : i === 0
            ? "before the layers"
            : i === runs.length - 1
              ? "after the layers"
              : "between";
    });
    return runs;
  }

  repetitions() {
    const runs = [];
    let at = 0;
    for (const { start, period, times, title } of this.data.folds) {
      if (start > at) runs.push({ layer: -1, title: `nodes ${at}–${start - 1}`, start: at, end: start });
      for (let k = 0; k < times; k++) {
        at = start + (k + 1) * period;
        runs.push({ layer: k, title: `${clean(title)}, ${k + 1} of ${times}`, start: at - period, end: at });
      }
    }
    if (at < this.nodes) runs.push({ layer: -1, title: `nodes ${at}–${this.nodes - 1}`, start: at, end: this.nodes });
    return runs;
  }

  /**
   * Where columns are drawn: `xs[c + 1]` is where column c begins, -1 being what is there before the first. `common`: a
   * node has the place of its number, so that two reports have one axis.
   */
  placeColumns(common) {
    const xs = new Float64Array(this.columns + 2);
    let helpers = [];
    let node = 0;
    for (let c = 0; c < this.columns; c++) {
      if (!common) xs[c + 1] = c + 1;
      else if (this.order.length && this.isHelper(this.order[c])) helpers.push(c);
      else {
        helpers.forEach((h, k) => {
          xs[h + 1] = node + 1 + (0.5 * k) / helpers.length;
        });
        xs[c + 1] = node + (helpers.length ? 1.5 : 1);
        helpers = [];
        node++;
      }
    }
    helpers.forEach((h, k) => {
      xs[h + 1] = node + 1 + (0.5 * k) / helpers.length;
    });
    xs[this.columns + 1] = common ? node + (helpers.length ? 1.5 : 1) : this.columns + 1;
    this.xs = xs;
  }

  /** The column that is drawn at a place. */
  columnAt(x) {
    return clamp(firstFrom(this.xs, x + 1e-9) - 2, -1, this.columns - 1);
  }

  isHelper(t) {
    return this.tensors[t].kind !== 0;
  }

  tensorById(id) {
    return this.ids.get(id) ?? -1;
  }

  /** The fields of an event by their names. */
  fields(e) {
    const row = this.events[e];
    const fields = {};
    this.kinds[row[0]].fields.forEach((field, i) => {
      fields[field] = i + 1 < row.length ? row[i + 1] : -1;
    });
    return fields;
  }

  columnOfEvent(e) {
    return this.events.length ? this.eventColumns[e] : -1;
  }

  /** The event at which the allocator comes to a column. */
  eventAtColumn(column) {
    const found = this.starts.findLast((e) => this.eventColumns[e] <= column);
    return column >= this.columns - 1 || found === undefined ? this.lastEvent : found;
  }

  lastReset(what, e) {
    const resets = this.resets[what];
    return resets[firstFrom(resets, e + 1) - 1] ?? -1;
  }

  /** The backend of a tensor right after an event, -1 before it has one. */
  backendAt(t, e) {
    const of = this.tensors[t];
    if (e >= this.lastEvent || of.assignments.length === 0) return of.backend;
    const [when, backend] = of.assignments[firstFrom(of.assignments, e + 1, ([event]) => event) - 1] || [-2, -1];
    return when >= this.lastReset(0, e) ? backend : -1;
  }

  /** Whether a split was begun when an event was told. */
  isCut(split, e) {
    if (e >= this.lastEvent) return true;
    const from = this.lastReset(1, e);
    return this.splitEvents.some(([when, of]) => of === split && when <= e && when >= from);
  }

  /** Whether a block has its memory after event e; `reset` is the last event at which all memory was forgotten. */
  isLive(block, e, reset = this.lastReset(2, e)) {
    return block.born <= e && (block.died < 0 || e < block.died) && block.born >= reset;
  }

  live(lane, e) {
    const reset = this.lastReset(2, e);
    return lane.blocks.filter((block) => this.isLive(block, e, reset)).sort((a, b) => a.offset - b.offset);
  }

  /** What nobody has in a chunk after an event: pairs of offset and size. */
  free(lane, e) {
    const gaps = [];
    let end = 0;
    for (const block of this.live(lane, e)) {
      if (block.offset > end) gaps.push([end, block.offset - end]);
      end = Math.max(end, block.offset + block.size);
    }
    if (end < lane.size) gaps.push([end, lane.size - end]);
    return gaps;
  }

  /** A text with the tensors in it: strings, and numbers of tensors as {tensor}. */
  pieces(parts, fields) {
    return parts.flatMap((part, i) => (i % 2 === 0 ? (part === "" ? [] : [part]) : this.piece(part, fields[part])));
  }

  piece(field, value) {
    if (value === null || value === undefined) return ["–"];
    switch (field) {
      case "tensor":
      case "by":
      case "other":
      case "node":
      case "until":
      case "src":
      case "dst":
        return value < 0 ? ["–"] : [{ tensor: value }];
      case "backend":
        return [this.backends[value] ? this.backends[value].name : "no backend"];
      case "buffer":
      case "src_buffer":
      case "dst_buffer":
        return [this.data.buffers[value] ? this.data.buffers[value].buft : "–"];
      case "size":
      case "nbytes":
      case "old_size":
      case "new_size":
        return [bytes(value)];
      case "function":
      case "detail":
      case "cause":
      case "call":
      case "how":
      case "level":
      case "line":
      case "old_place":
      case "new_place":
        return [this.strings[value] ?? "–"];
      default:
        return [String(value)];
    }
  }

  /** A text of the table `texts`, which speaks of the fields of a row. */
  text(number, fields) {
    return number >= 0 ? this.pieces(this.data.texts[number], fields) : [];
  }

  /** An event in words. */
  telling(e) {
    const fields = this.fields(e);
    const { says } = this.kinds[this.events[e][0]];
    return says.flatMap((part, i) => {
      if (i % 2 === 0) return part === "" ? [] : [part];
      return part === "text" ? this.text(fields.text, fields) : this.piece(part, fields[part]);
    });
  }

  plain(pieces) {
    return pieces
      .map((piece) => (typeof piece === "string" ? clean(piece) : this.tensors[piece.tensor].shown))
      .join("");
  }

  kindOf(e) {
    return this.kinds[this.events[e][0]].name;
  }
}

/** The fields of a row of `tensors`; what is a text there is its number in `strings`. */
const TENSOR = [
  ..."id named kind op shape nbytes flags backend cause split viewOf buffer chunk offset size layer uses".split(" "),
  ..."reason by other answers src reads".split(" "),
];

function tensorOf(row, i, strings) {
  const told = Object.fromEntries(TENSOR.map((field, at) => [field, row[at]]));
  const t = {
    ...told,
    i,
    shown: clean(told.named === "" ? told.id : told.named),
    op: told.kind === 2 ? "copy" : (strings[told.op] ?? ""),
    shape: strings[told.shape] ?? "",
    cause: strings[told.cause] ?? "",
    column: -1,
    number: -1,
    users: [],
    views: [],
    copies: [],
    blocks: [],
    events: [],
    assignments: [],
  };
  t.searched = `${t.id} ${t.named} ${t.op} ${t.shape}`.toLowerCase();
  return t;
}

/** Layers of nodes, where nodes without one belong to the layer around them. */
function filled(layers) {
  const first = layers.findIndex((layer) => layer >= 0);
  const last = layers.findLastIndex((layer) => layer >= 0);
  const out = layers.slice();
  let current = -1;
  for (let i = Math.max(first, 0); i <= last; i++) {
    if (out[i] < 0) out[i] = current;
    current = out[i];
  }
  return out;
}

function inputOf([tensor, what, backend, nbytes, node, copies], strings) {
  return { tensor, what: strings[what] ?? "", backend, nbytes, node, copies };
}

function blockOf([tensor, buffer, chunk, offset, size, givenBack, start, end, born, died, took, given, kept], i) {
  return { i, tensor, buffer, chunk, offset, size, givenBack, start, end, born, died, took, given, kept };
}

function flagsOf(t) {
  return FLAGS.filter((_, bit) => t.flags & (1 << bit));
}
