// Runs in a page's own world before its scripts. It replaces two functions that fail under automation: the file picker,
// which is cancelled, by a file input; and writing to the clipboard, which is denied, by a copy that our scripts hear.
// It also tells our scripts of the timers that an input starts: what they change belongs to the action.
(() => {
  const SOON_MS = 100, LATE_MS = 1000;
  const { CustomEvent } = window, { apply } = Reflect, now = performance.now.bind(performance);
  let view = window, acted = -Infinity, allowed = 0;
  while (view.frameElement) view = view.parent;
  const tell = view.document.dispatchEvent.bind(view.document);
  for (const type of ["pointerover", "pointerdown", "pointerup", "click", "keydown", "input", "change", "drop"]) {
    window.addEventListener(type, (event) => {
      if (event.isTrusted) allowed = (acted = now()) + LATE_MS;
    }, { capture: true, passive: true });
  }
  window.setTimeout = new Proxy(window.setTimeout, { apply: (target, self, given) => {
    const [call, delay, ...rest] = given;
    const isLate = delay > SOON_MS && now() - acted < SOON_MS && now() + delay <= allowed + SOON_MS;
    if (!isLate || typeof call !== "function") return apply(target, self, given);
    tell(new CustomEvent("webgym-timer", { detail: Number(delay) }));
    const then = function (...values) {
      acted = now(); // what it starts itself belongs to the input, too
      return apply(call, this, values);
    };
    return apply(target, self, [then, delay, ...rest]);
  } });

  const refuse = (message) => new DOMException(message, "NotAllowedError");
  const handle = (file) => {
    const values = { kind: "file", name: file.name, getFile: async () => file, queryPermission: async () => "granted",
      requestPermission: async () => "granted", createWritable: async () => { throw refuse("The file can't be changed."); } };
    return Object.defineProperties(Object.create(FileSystemFileHandle.prototype), Object.fromEntries(
      Object.entries(values).map(([name, value]) => [name, { value }])));
  };
  if (window.showOpenFilePicker) {
    window.showOpenFilePicker = (options) => new Promise((done) => {
      const input = Object.assign(document.createElement("input"), { type: "file", multiple: Boolean(options?.multiple) });
      input.onchange = () => done(Array.from(input.files, handle));
      input.click();
    });
  }
  const clipboard = window.Clipboard?.prototype;
  if (!clipboard) return;
  clipboard.writeText = async (text) => {
    const give = (event) => {
      event.clipboardData.setData("text/plain", text);
      event.preventDefault();
    };
    window.addEventListener("copy", give, { capture: true, once: true });
    const isCopied = document.execCommand("copy");
    window.removeEventListener("copy", give, { capture: true });
    if (!isCopied) throw refuse("Write permission denied.");
  };
  clipboard.write = async ([item]) => clipboard.writeText(await (await item.getType("text/plain")).text());
})();
