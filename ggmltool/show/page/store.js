/* What the reader has chosen: side, tensor, event, hits of the search. One place; who wants to know listens. */

const store = {
  sides: [],
  side: 0,
  tensor: -1,
  event: 0,
  hits: null,
  listeners: [],

  /** The report that is looked at: one, or of two the one that is chosen. */
  get model() {
    return this.sides[this.side];
  },

  /** Calls `listener` with the names of what changed, after each change. */
  listen(listener) {
    this.listeners.push(listener);
  },

  /** Changes some of it: {tensor: 3}. */
  set(change, fromHistory = false) {
    const changed = new Set();
    for (const [key, value] of Object.entries(change)) {
      if (this[key] === value) continue;
      this[key] = value;
      changed.add(key);
    }
    if (changed.size === 0) return;
    if (changed.has("side")) this.afterSide(changed, change);
    timed("select", () => this.listeners.forEach((listener) => listener(changed)));
    if (!fromHistory) remember(changed);
  },

  /** On the other side the same tensor is chosen, by its id, and the event at the same place, unless others are. */
  afterSide(changed, change) {
    const before = this.sides[1 - this.side];
    if (!("tensor" in change) && this.tensor >= 0)
      this.tensor = this.model.tensorById(before.tensors[this.tensor].id);
    if (!("event" in change))
      this.event =
        this.event >= before.lastEvent
          ? this.model.lastEvent
          : this.model.eventAtColumn(before.columnOfEvent(this.event));
    ["tensor", "event", "hits"].forEach((key) => changed.add(key));
  },
};

let noted = 0;

/** Writes the choice into the address: a tensor is a step to go back to, an event is not. */
function remember(changed) {
  const parts = [];
  if (store.side === 1) parts.push("side=b");
  if (store.tensor >= 0) parts.push("t=" + encodeURIComponent(store.model.tensors[store.tensor].id));
  if (store.event !== store.model.lastEvent) parts.push("e=" + store.event);
  const hash = "#" + parts.join("&");
  clearTimeout(noted);
  if (changed.has("tensor") || changed.has("side")) writeAddress("pushState", hash);
  else noted = setTimeout(() => writeAddress("replaceState", hash), 250);
}

/** A page in a frame of a notebook has no address to write to. */
function writeAddress(how, hash) {
  try {
    history[how](null, "", hash);
  } catch (refused) {
    if (!(refused instanceof DOMException)) throw refused;
  }
}

/** Chooses what the address says. */
function recall() {
  const said = new Map(
    location.hash
      .slice(1)
      .split("&")
      .map((part) => part.split(/=(.*)/s)),
  );
  const side = said.get("side") === "b" && store.sides.length > 1 ? 1 : 0;
  store.set({ side }, true);
  const model = store.model;
  const event = said.has("e") ? Number.parseInt(said.get("e"), 10) : model.lastEvent;
  store.set(
    {
      tensor: said.has("t") ? model.tensorById(decoded(said.get("t"))) : -1,
      event: clamp(Number.isFinite(event) ? event : model.lastEvent, 0, model.lastEvent),
    },
    true,
  );
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
