/* The walk through the events: a slider, steps forth and back, and the event in words. */

const STEPS = {
  every: ["every event", null],
  memory: ["memory", new Set(["Allocated", "Reused", "NotReused", "Freed", "Kept", "Grown", "ReallocNeeded"])],
  backends: ["backends", new Set(["Assigned", "PassedOver", "Refused", "IdsChanged"])],
  splits: [
    "splits and copies",
    new Set(["SplitStarted", "InputAdded", "GraphInputCopied", "TensorCopied", "Computed"]),
  ],
  chosen: ["the chosen tensor", null],
};

const timeline = {
  which: "every",
  playing: 0,
  steps: null,

  start() {
    this.slider = byId("slider");
    this.slider.addEventListener("input", () => store.set({ event: Number(this.slider.value) }));
    const press = {
      first: () => this.to(0),
      back: () => this.step(-1),
      play: () => this.play(),
      on: () => this.step(1),
      last: () => this.to(store.model.lastEvent),
      "node-back": () => this.node(-1),
      "node-on": () => this.node(1),
    };
    for (const [id, act] of Object.entries(press)) byId(id).addEventListener("click", act);
    const which = byId("which");
    fill(
      which,
      Object.entries(STEPS).map(([value, [text]]) => el("option", { value, text })),
    );
    which.addEventListener("change", () => {
      this.which = which.value;
      this.steps = null;
    });
    store.listen((changed) => this.changed(changed));
    this.redraw = perFrame("event", () => this.draw());
  },

  changed(changed) {
    if (changed.has("side") || (changed.has("tensor") && this.which === "chosen")) this.steps = null;
    if (changed.has("event") || changed.has("side")) this.redraw();
  },

  /** The events that a step stops at, null for all. */
  stops() {
    if (this.which === "every") return null;
    if (this.steps !== null) return this.steps;
    const { model } = store;
    const kinds = STEPS[this.which][1];
    if (this.which === "chosen") this.steps = store.tensor < 0 ? [] : model.tensors[store.tensor].events;
    else this.steps = model.events.flatMap((_, e) => (kinds.has(model.kindOf(e)) ? [e] : []));
    return this.steps;
  },

  /** Goes to the next event, or back; whether there was one. */
  step(by) {
    const stops = this.stops();
    const { event, model } = store;
    if (stops === null) return this.to(event + by);
    const place = by > 0 ? firstFrom(stops, event + 1) : firstFrom(stops, event) - 1;
    return stops[place] === undefined ? this.to(by > 0 ? model.lastEvent : 0) : this.to(stops[place]);
  },

  to(event) {
    const now = clamp(event, 0, store.model.lastEvent);
    const moved = now !== store.event;
    store.set({ event: now });
    return moved;
  },

  /** Goes to where the allocator turns to the next node, or to the one before. */
  node(by) {
    const { starts, lastEvent } = store.model;
    const place = by > 0 ? firstFrom(starts, store.event + 1) : firstFrom(starts, store.event) - 1;
    return this.to(starts[place] ?? (by > 0 ? lastEvent : 0));
  },

  play() {
    if (this.playing) return this.pause();
    if (store.event >= store.model.lastEvent) this.to(0);
    const often = clamp(20000 / Math.max((this.stops() || store.model.events).length, 1), 16, 350);
    const many = Math.max(1, Math.round(((this.stops() || store.model.events).length / 20000) * 16));
    this.playing = setInterval(() => {
      for (let k = 0; k < many; k++) if (!this.step(1)) return this.pause();
      return undefined;
    }, often);
    return this.draw();
  },

  pause() {
    clearInterval(this.playing);
    this.playing = 0;
    this.draw();
  },

  draw() {
    const { model, event } = store;
    this.slider.max = String(model.lastEvent);
    this.slider.value = String(event);
    const play = byId("play");
    play.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    play.dataset.icon = this.playing ? "pause" : "play";
    if (model.events.length === 0) return;
    const telling = model.telling(event);
    const column = model.columnOfEvent(event);
    const t = model.tensors[model.order[column]];
    const at = t ? (t.number >= 0 ? `node ${t.number}` : t.shown) : "the start";
    const step = model.data.steps.findLast((row) => row.event <= event);
    fill(
      byId("event-place"),
      `${integer(event + 1)} of ${integer(model.lastEvent + 1)} · ${step ? clean(step.title) : ""} · at ${at}`,
    );
    fill(byId("event-said"), rich(model, telling));
    this.slider.setAttribute(
      "aria-valuetext",
      `event ${event + 1} of ${model.lastEvent + 1}: ${model.plain(telling)}`,
    );
    byId("event-live").textContent = this.playing ? "" : `Event ${event + 1}: ${model.plain(telling)}`;
  },
};

/** Pieces of a telling as text and buttons that choose a tensor. */
function rich(model, pieces) {
  return pieces.map((piece) => (typeof piece === "string" ? clean(piece) : tensorButton(model, piece.tensor)));
}

/** A tensor's name, which chooses it. */
function tensorButton(model, t, text) {
  const of = model.tensors[t];
  if (!of) return "–";
  return el(
    "button",
    {
      class: "tensor",
      type: "button",
      "data-tensor": t,
      onclick: () => store.set({ side: store.sides.indexOf(model), tensor: t }),
    },
    el("bdi", { text: text ?? of.shown }),
  );
}
