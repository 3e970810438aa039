/* Keys that work everywhere, and the page of help that lists all. */

const KEYS = [
  [["/"], "search"],
  [["←", "→"], "event before, next event"],
  [["Shift ←", "Shift →"], "node before, next node"],
  [["Home", "End"], "first event, last event (on the slider)"],
  [["Space"], "play or pause"],
  [["W", "S", "A", "D"], "memory map or graph: zoom in and out, move"],
  [["Shift W", "Shift S"], "memory map: zoom the offsets"],
  [["0"], "see all of it"],
  [["Z"], "zoom to the chosen tensor"],
  [["↑", "↓"], "memory map: choose the block above or below; graph: the node before or next"],
  [["Enter"], "graph: open or fold the layer"],
  [["Ctrl wheel"], "zoom; without Ctrl once the picture was clicked"],
  [["Alt wheel"], "zoom the offsets"],
  [["Esc"], "choose nothing"],
  [["T"], "light or dark"],
  [["?"], "this help"],
];

const keys = {
  start(maps) {
    this.maps = maps;
    fill(
      byId("keys"),
      KEYS.map(([of, what]) =>
        el(
          "div",
          {},
          el(
            "dt",
            {},
            of.map((key, i) => [i ? " " : "", el("kbd", { text: key })]),
          ),
          el("dd", { text: what }),
        ),
      ),
    );
    byId("help-button").addEventListener("click", () => this.help());
    byId("help-close").addEventListener("click", () => byId("help").close());
    document.addEventListener("keydown", (event) => this.press(event));
  },

  help() {
    byId("help").showModal();
  },

  press(event) {
    const { target } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    if (target.closest("input:not([type=range]), select, textarea")) return;
    const isButton = target.closest("button, summary, a");
    const act = {
      "/": () => byId("search").select(),
      "?": () => this.help(),
      t: () => switchTheme(),
      Escape: () => store.set({ tensor: -1 }),
      ArrowLeft: () => (event.shiftKey ? timeline.node(-1) : timeline.step(-1)),
      ArrowRight: () => (event.shiftKey ? timeline.node(1) : timeline.step(1)),
      " ": isButton ? null : () => timeline.play(),
      z: () => this.maps[store.side].zoomToSelected(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  },
};
