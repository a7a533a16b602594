// Runs in a page's own world before its scripts. It replaces functions that fail under automation: the pickers of files
// and folders, which are cancelled, by a file input or a download; locking the mouse, which is refused; and writing to the clipboard, which is denied, by a copy that our scripts hear.
// It also tells our scripts of the timers that an input or the answer to its request starts: they belong to the action.
(() => {
  const SOON_MS = 100, LATE_MS = 1500;
  const { CustomEvent, DOMException, Number } = window, { apply } = Reflect, now = performance.now.bind(performance);
  // The page's scripts may replace methods later, and its forms shadow those of the document.
  const keep = (kind, name) => {
    const method = kind.prototype[name];
    return (self, ...given) => apply(method, self, given);
  };
  const listen = keep(EventTarget, "addEventListener"), unlisten = keep(EventTarget, "removeEventListener");
  const dispatch = keep(EventTarget, "dispatchEvent"), exec = keep(Document, "execCommand"), make = keep(Document, "createElement");
  const entriesOf = keep(PerformanceObserverEntryList, "getEntries");
  let view = window, acted = -Infinity, allowed = Infinity, begun = 0, end = 0;
  while (view.frameElement) view = view.parent;
  const { document } = window, top = view.document;
  for (const type of ["pointerover", "pointerdown", "pointerup", "click", "keydown", "input", "change", "drop"]) {
    listen(window, type, (event) => {
      if (event.isTrusted) allowed = (acted = now()) + LATE_MS;
    }, { capture: true, passive: true });
  }
  window.setTimeout = new Proxy(window.setTimeout, { apply: (target, self, given) => {
    const call = given[0], delay = given[1];
    // without destructuring, which calls an iterator that the page may have replaced
    if (delay >= SOON_MS && delay <= LATE_MS) {
      begun = now();
      end = begun + delay;
    }
    const isLate = delay >= SOON_MS && now() - acted < SOON_MS && now() + delay <= allowed + SOON_MS;
    if (!isLate || typeof call !== "function") return apply(target, self, given);
    dispatch(top, new CustomEvent("webgym-timer", { detail: Number(delay) }));
    given[0] = function (...values) {
      acted = now(); // what it starts itself belongs to the input, too
      return apply(call, this, values);
    };
    return apply(target, self, given);
  } });

  new PerformanceObserver((list) => {
    const entries = entriesOf(list);
    for (let at = 0; at < entries.length; at++) {
      const { initiatorType, startTime, responseEnd } = entries[at];
      const isRequest = initiatorType === "fetch" || initiatorType === "xmlhttprequest";
      const isOwn = isRequest && startTime >= allowed - LATE_MS && startTime <= allowed;
      const starts = isOwn && begun > startTime && begun - responseEnd < SOON_MS;
      if (starts) dispatch(top, new CustomEvent("webgym-timer", { detail: end - now() }));
    }
  }).observe({ type: "resource" });

  // Roles and states in the internals of custom elements, which our scripts ask for: all of one element, or the names of
  // the elements that have any.
  const getter = (kind, name) => {
    const { get } = Object.getOwnPropertyDescriptor(kind.prototype, name);
    return (self) => apply(get, self, []);
  };
  const attach = keep(HTMLElement, "attachInternals"), keepFor = keep(WeakMap, "set"), keptOf = keep(WeakMap, "get"), internals = new WeakMap();
  const tagOf = getter(Element, "localName"), askedOf = getter(SubmitEvent, "submitter"), tags = { __proto__: null };
  const states = Object.keys(ElementInternals.prototype).filter((name) => /^(role$|aria(?!.*Elements?$))/.test(name))
    .map((name) => ({ name: name.toLowerCase(), read: getter(ElementInternals, name) }));
  HTMLElement.prototype.attachInternals = function () {
    const own = attach(this);
    keepFor(internals, this, own);
    tags[tagOf(this)] = true;
    return own;
  };
  listen(document, "webgym-ask", (event) => {
    const element = askedOf(event), own = element && keptOf(internals, element), told = { __proto__: null };
    for (let at = 0; own && at < states.length; at++) {
      const state = states[at].read(own);
      if (state) told[states[at].name] = state;
    }
    dispatch(document, new CustomEvent("webgym-told", { detail: element ? told : tags }));
  });

  // Handlers that frameworks with one listener for all keep on their elements (React's properties, `$$click`, `__click`):
  // the types, by the element's number in the document, each followed by those within its open shadow root.
  const keysOf = Object.keys, all = keep(Document, "querySelectorAll"), allIn = keep(DocumentFragment, "querySelectorAll"), match = keep(RegExp, "exec");
  const rootOf = getter(Element, "shadowRoot");
  const PROPS = /^__react(Props|EventHandlers)\$/, HANDLER = /^(?:on|\$\$|__)((?:dbl|double)?click|contextmenu|(?:mouse|pointer)(?:enter|over|down))$/i;
  const typesOf = (object) => {
    let types = "";
    for (let at = 0, names = keysOf(object); at < names.length; at++) {
      const kept = object[names[at]];
      if (match(PROPS, names[at])) types += typesOf(kept);
      else if (typeof kept === "function") types += ` ${match(HANDLER, names[at])?.[1] || ""}`;
    }
    return types;
  };
  const addTypes = (elements, told, count) => {
    for (let at = 0; at < elements.length; at++, count++) {
      const types = typesOf(elements[at]), root = rootOf(elements[at]);
      if (match(/\w/, types)) told[count] = types;
      if (root) count = addTypes(allIn(root, "*"), told, count + 1) - 1;
    }
    return count;
  };
  listen(document, "webgym-handlers", () => {
    const told = { __proto__: null };
    addTypes(all(document, "*"), told, 0);
    dispatch(document, new CustomEvent("webgym-told", { detail: told }));
  });

  const refuse = (message) => new DOMException(message, "NotAllowedError");
  const granted = async () => "granted";
  const made = (kind, name, values) => Object.defineProperties(Object.create(kind.prototype), Object.getOwnPropertyDescriptors(
    { kind: kind === FileSystemFileHandle ? "file" : "directory", name, queryPermission: granted, requestPermission: granted, ...values }));
  const handle = (file) => made(FileSystemFileHandle, file.name, {
    getFile: async () => file, createWritable: async () => { throw refuse("The file can't be changed."); } });

  // A file that is saved is a download.
  const target = (name) => {
    let kept = [];
    const createWritable = async () => {
      const parts = [], put = async (data) => { parts.push(data?.type === "write" ? data.data : data); };
      const save = async () => {
        kept = parts;
        Object.assign(make(document, "a"), { href: URL.createObjectURL(new Blob(parts)), download: name }).click();
      };
      const nothing = async () => undefined;
      return Object.assign(new WritableStream({ write: put, close: save }), { write: put, close: save, seek: nothing, truncate: nothing });
    };
    return made(FileSystemFileHandle, name, { createWritable, getFile: async () => new File(kept, name) });
  };

  // A folder has the files that are given.
  const folder = (files) => {
    const handles = new Map(files.map((file) => [file.name, handle(file)]));
    const entries = async function* () { yield* handles; };
    const getFileHandle = async (name, options) => {
      if (!handles.has(name) && !options?.create) throw new DOMException(name, "NotFoundError");
      return handles.get(name) || handles.set(name, target(name)).get(name);
    };
    return made(FileSystemDirectoryHandle, "files", { entries, [Symbol.asyncIterator]: entries, getFileHandle,
      keys: async function* () { yield* handles.keys(); }, values: async function* () { yield* handles.values(); } });
  };

  const pick = (multiple) => new Promise((done) => {
    const input = Object.assign(make(document, "input"), { type: "file", multiple });
    input.onchange = () => done(Array.from(input.files));
    input.click();
  });
  if (window.showOpenFilePicker) {
    window.showOpenFilePicker = async (options) => (await pick(Boolean(options?.multiple))).map(handle);
    window.showDirectoryPicker = async () => folder(await pick(true));
    window.showSaveFilePicker = async (options) => target(options?.suggestedName || "untitled");
  }
  // A mouse that is locked gets no further input.
  Element.prototype.requestPointerLock = async () => { throw refuse("The mouse can't be locked."); };
  const clipboard = window.Clipboard?.prototype;
  if (!clipboard) return;
  clipboard.writeText = async (text) => {
    const give = (event) => {
      event.clipboardData.setData("text/plain", text);
      event.preventDefault();
    };
    listen(window, "copy", give, { capture: true, once: true });
    const isCopied = exec(document, "copy");
    unlisten(window, "copy", give, { capture: true });
    if (!isCopied) throw refuse("Write permission denied.");
  };
  clipboard.write = async ([item]) => clipboard.writeText(await (await item.getType("text/plain")).text());
  // Reading is denied, too: our scripts know what was copied in the episode.
  clipboard.readText = async () => {
    let copied = "";
    listen(top, "webgym-copied", ({ detail }) => { copied = detail; }, { once: true });
    dispatch(top, new CustomEvent("webgym-paste"));
    return copied;
  };
  clipboard.read = async () => [new ClipboardItem({ "text/plain": await clipboard.readText() })];
})();
