// Runs in every document before its own scripts. Installs one hidden object, the hands, that Python asks to
//   settle()      wait until the page stands still and has drawn, bounded in time;
//   calm()        the same for pages of the open web, which load and change when they like;
//   prepare()     get a field ready for text, or put the text into a field that takes no keys;
//   select()      choose the option of the list at a point;
//   scrollable()  say where the wheel has to turn.
(() => {
  const KEY = Symbol.for("webgym.hands");
  if (window[KEY]) return;

  const QUIET_MS = 100, IMPATIENT_MS = 300;

  const shown = (text) => text.replace(/\s+/g, " ").trim().slice(0, 80);

  // A page that is not drawn gets no frames: then time has to do.
  const frame = () => new Promise((done) => {
    requestAnimationFrame(done);
    setTimeout(done, 100);
  });

  const loading = () => document.fonts.status === "loading" ||
    Array.prototype.some.call(document.images, (image) => !image.complete && image.loading !== "lazy");

  const moving = () => loading() || window.jQuery?.timers?.length > 0 || document.getAnimations().some((animation) =>
    animation.playState === "running" && animation.effect?.getComputedTiming().endTime !== Infinity);

  // Pictures that only style sheets name: their loading can't be seen, so each is loaded once more and awaited.
  const drawn = new Set();
  const stylePictures = () => {
    const fresh = [];
    for (const element of document.querySelectorAll("body *")) {
      for (const part of [null, "::before", "::after"]) {
        const style = getComputedStyle(element, part);
        if (part && style.content === "none") continue;
        for (const value of [style.content, style.backgroundImage, style.listStyleImage]) {
          for (const [, url] of value.includes("url(") ? value.matchAll(/url\("(.*?)"\)/g) : []) {
            if (!drawn.has(url)) fresh.push(url);
            drawn.add(url);
          }
        }
      }
    }
    return fresh.map((url) => Object.assign(new Image(), { src: url }).decode().catch(() => null));
  };

  // Wait until the page stands still and has drawn; `limit` milliseconds at most. `pictures` is for small pages.
  const settle = async (limit, pictures = false) => {
    const end = performance.now() + limit;
    let waited = false;
    await frame();
    await frame();
    while (performance.now() < end && moving()) {
      waited = true;
      await frame();
    }
    const loads = pictures ? stylePictures() : [];
    if (loads.length) await Promise.race([Promise.all(loads), new Promise((done) => setTimeout(done, limit))]);
    if (loads.length || waited) {
      await frame();
      await frame();
    }
  };

  // A page that did not become calm once is not waited for as long again: it ticks, streams or never finishes loading.
  let patience = Infinity;
  const calm = async (limit) => {
    const end = performance.now() + Math.min(limit, patience);
    let changed = performance.now();
    const observer = new MutationObserver(() => { changed = performance.now(); });
    observer.observe(document, { childList: true, subtree: true, characterData: true });
    await frame();
    await frame();
    const restless = () => document.readyState !== "complete" || moving() || performance.now() - changed < QUIET_MS;
    while (performance.now() < end && restless()) await frame();
    observer.disconnect();
    patience = restless() ? IMPATIENT_MS : Infinity;
  };

  const focused = () => {
    let element = document.activeElement;
    while (element) {
      const deeper = element.shadowRoot?.activeElement ||
        (element.localName === "iframe" && element.contentDocument?.activeElement);
      if (!deeper) break;
      element = deeper;
    }
    return element;
  };

  const setNatively = (element, value) => {
    // The prototype's setter: frameworks shadow the element's own and would not notice the change.
    Object.getOwnPropertyDescriptor(Object.getPrototypeOf(element), "value").set.call(element, value);
  };

  const changed = (element) => {
    for (const type of ["input", "change"]) element.dispatchEvent(new Event(type, { bubbles: true }));
  };

  const choose = (select, text) => {
    const clean = (label) => label.replace(/\s+/g, " ").trim();
    const options = Array.from(select.options).filter((option) => !option.disabled);
    const find = (label) => options.find((option) => clean(option.label) === clean(label)) ||
      options.find((option) => clean(option.label).toLowerCase() === clean(label).toLowerCase()) ||
      (clean(label) && options.find((option) => clean(option.label).toLowerCase().includes(clean(label).toLowerCase())));
    const whole = find(text);
    const wanted = whole ? [whole] : select.multiple ? text.split(/[,\n]/).map(find) : [undefined];
    if (wanted.some((option) => !option)) {
      return { error: `no option is called ${JSON.stringify(shown(text))}; there are: ` +
        options.slice(0, 20).map((option) => shown(option.label)).join(", ") };
    }
    for (const option of select.options) option.selected = wanted.includes(option);
    changed(select);
    return { done: true };
  };

  // The element under a point, through open shadow roots and frames of the same origin.
  const deepest = (x, y) => {
    for (let root = document, found = null; ;) {
      const inner = root.elementFromPoint(x, y);
      if (!inner || inner === found) return found;
      found = inner;
      if (inner.localName === "iframe" && inner.contentDocument) {
        const box = inner.getBoundingClientRect();
        [x, y, root] = [x - box.left - inner.clientLeft, y - box.top - inner.clientTop, inner.contentDocument];
      } else if (inner.shadowRoot) root = inner.shadowRoot;
      else return found;
    }
  };

  const select = ([x, y], text) => {
    const found = deepest(x, y);
    const list = found?.closest("select") || found?.closest("label")?.control;
    if (list?.localName !== "select") return { error: "there is no list of options; click what opens it, then the option" };
    list.focus();
    return choose(list, text);
  };

  // Get the field at a point ready for text. Answers {done}, {error}, or {typing} when keys should follow.
  const prepare = ([x, y], text) => {
    let field = deepest(x, y);
    const control = field?.closest?.("select") || field?.closest?.("label")?.control;
    if (control?.localName === "select") return choose(control, text);
    field = focused();
    if (field?.localName === "select") return choose(field, text);
    if (field?.localName === "input" && /^(date|time|month|week|datetime-local|color|range)$/.test(field.type)) {
      setNatively(field, text);
      if (field.value !== text && field.type !== "color" && field.type !== "range") {
        return { error: `a field of type ${field.type} does not take ${JSON.stringify(shown(text))}; ` +
          "dates are written YYYY-MM-DD, times HH:MM" };
      }
      changed(field);
      return { done: true };
    }
    if (field?.localName === "input" || field?.localName === "textarea") {
      if (field.readOnly || field.disabled) return { error: "the field can't be changed" };
      field.select();
      return { typing: true, empty: field.value === "" };
    }
    if (field?.isContentEditable) {
      field.ownerDocument.defaultView.getSelection().selectAllChildren(field);
      return { typing: true, empty: field.textContent === "" };
    }
    return { typing: true, empty: true };
  };

  // Where the wheel has to turn to scroll a page up or down: the middle, unless only a part elsewhere can scroll.
  const scrollable = (down) => {
    const can = (element) => element.scrollHeight > element.clientHeight + 1 &&
      (down ? element.scrollTop + element.clientHeight < element.scrollHeight - 1 : element.scrollTop > 0) &&
      (element === document.scrollingElement || /auto|scroll/.test(getComputedStyle(element).overflowY) ||
        element.localName === "textarea");
    const middle = [innerWidth / 2, innerHeight / 2];
    for (let at = document.elementFromPoint(...middle); at; at = at.parentElement) if (can(at)) return middle;
    if (document.scrollingElement && can(document.scrollingElement)) return middle;
    let best = null, area = 0;
    for (const element of document.querySelectorAll("div,section,main,ul,ol,textarea,select,table,tbody,pre,nav,aside")) {
      if (!can(element)) continue;
      const box = element.getBoundingClientRect();
      const left = Math.max(box.left, 0), right = Math.min(box.right, innerWidth);
      const top = Math.max(box.top, 0), bottom = Math.min(box.bottom, innerHeight);
      const seen = Math.max(right - left, 0) * Math.max(bottom - top, 0);
      if (seen > area) [best, area] = [[(left + right) / 2, (top + bottom) / 2], seen];
    }
    return best || middle;
  };

  Object.defineProperty(window, KEY, { value: Object.freeze({ settle, calm, prepare, select, scrollable }) });
})();
