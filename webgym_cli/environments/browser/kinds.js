// Runs in every document before its own scripts, after names.js. Installs one hidden object, the kinds, that tells how
// sure it is that an element is meant to be acted on, and whether a page shows only that it is busy.
(() => {
  const KEY = Symbol.for("webgym.kinds");
  if (window[KEY]) return;

  const { editable, oneLine, parentOf, textOf } = window[Symbol.for("webgym.names")];
  const NATIVE = "a[href],area[href],button,input:not([type=hidden]),select,textarea,summary,option,video[controls]," +
    "audio[controls]";
  const ROLES = new Set(["button", "link", "checkbox", "radio", "tab", "option", "menuitem", "menuitemcheckbox",
    "menuitemradio", "switch", "textbox", "searchbox", "combobox", "slider", "spinbutton", "treeitem", "gridcell"]);
  // What a listener above is meant for, where lists and tables handle the clicks on their parts.
  const PARTS = "li,tr,th,[draggable=true],[role=row],[role=columnheader],[role=rowheader],[role=listitem]";
  // What only holds controls, whether or not it listens.
  const HOLDERS = new Set(["toolbar", "main", "navigation", "region", "banner", "contentinfo", "complementary", "tabpanel",
    "group", "list", "menu", "menubar", "dialog", "alertdialog", "listbox", "tree", "grid", "table", "tablist", "radiogroup",
    "separator", "document", "article", "application", "status", "log"]);
  const CLICKS = new Set(["click", "mousedown", "mouseup", "pointerdown", "pointerup", "dblclick"]);
  // So many elements are asked for their listeners; a root of a framework listens to so many kinds of events.
  const MOST_ASKED = 3000, MANY_EVENTS = 30;
  const listening = new WeakSet();

  const watchListeners = () => {
    // Listeners can't be listed from within a page, so those for clicks are remembered as they are added.
    const add = EventTarget.prototype.addEventListener;
    EventTarget.prototype.addEventListener = function (type, ...rest) {
      if (CLICKS.has(type) && this instanceof Element) listening.add(this);
      return add.call(this, type, ...rest);
    };
  };

  // Whether an element listens for clicks, as far as the browser's tools, or what we remember, tell.
  const listeners = (ask) => {
    const known = new Map();
    return (element) => {
      if (listening.has(element) || typeof element.onclick === "function") return true;
      if (!ask || known.size > MOST_ASKED) return false;
      if (!known.has(element)) {
        const types = Object.keys(ask(element));
        known.set(element, types.length < MANY_EVENTS && types.some((type) => CLICKS.has(type)));
      }
      return known.get(element);
    };
  };

  const matches = (element, selector) => Element.prototype.matches.call(element, selector);

  const pointed = (element) => getComputedStyle(element).cursor === "pointer";

  // How sure we are that the element is meant to be acted on: 3 by its kind, 2 by a pointer, 1 by a listener, 0 not.
  const interest = (element, listens) => {
    if (element.matches(NATIVE)) {
      if (element.localName === "option") return element.closest("select[multiple],select[size]") ? 3 : 0;
      return 3;
    }
    const role = (element.getAttribute("role") || "").trim().split(/\s+/)[0];
    if (ROLES.has(role) || editable(element)) return 3;
    if (element === element.ownerDocument.body || element === element.ownerDocument.documentElement) return 0;
    if (element.hasAttribute("aria-sort")) return 2;
    if (element.localName === "label" && element.control) return 0;
    const parent = parentOf(element);
    if (pointed(element) && !(parent && pointed(parent))) return 2;
    if (HOLDERS.has(role) || element.localName === "label") return 0;
    if (matches(element, "li,tr,th") && !oneLine(textOf(element))) return 0;
    if (Number(element.getAttribute("tabindex") ?? -1) >= 0 || listens(element)) return 1;
    if (!element.matches(PARTS)) return 0;
    // The listener is there for the controls within.
    if (!element.draggable && element.querySelector(NATIVE)) return 0;
    for (let above = parent, steps = 0; above && steps < 5; above = parentOf(above), steps++) {
      if (above === above.ownerDocument.body) return 0;
      if (listens(above)) return 2;
    }
    return 0;
  };

  const SPINNERS = "[aria-busy=true],progress:not([value]),[role=progressbar]:not([aria-valuenow]),[class*=spinner i]," +
    "[class*=splash i],[id*=splash i],[class*=loading i],[id*=loading i],[class*=loader i],[id*=loader i]";

  const isEmpty = () => (document.body?.childElementCount ?? 0) < 20 && !document.body?.innerText?.trim() &&
    !document.querySelector("img,svg,canvas,video,iframe,frame,object,embed,input");

  // Whether something in sight turns or says that the page is busy, or there is nothing at all in a page that is one of
  // scripts, and nothing in sight can be acted on.
  const isSplash = () => {
    const shown = (element) => {
      const box = element?.getBoundingClientRect?.();
      return box && box.width > 0 && box.bottom > 0 && box.top < innerHeight && element.checkVisibility({ opacityProperty: true });
    };
    const turns = (animation) => animation.playState === "running" &&
      animation.effect?.getComputedTiming().endTime === Infinity && shown(animation.effect.target);
    if (document.scripts.length && isEmpty()) return true;
    if (!document.getAnimations().some(turns) && !Array.from(document.querySelectorAll(SPINNERS)).some(shown)) return false;
    for (let y = 0.05; y < 1; y += 0.1) {
      for (let x = 0.05; x < 1; x += 0.1) {
        for (let at = document.elementFromPoint(innerWidth * x, innerHeight * y); at; at = parentOf(at)) {
          if (matches(at, "form")) continue; // its fields' names hide its own
          if (at.localName.includes("-") || interest(at, () => false) > 1 || matches(at, "iframe,frame")) return false;
        }
      }
    }
    return true;
  };

  Object.defineProperty(window, KEY, { value: Object.freeze({ isSplash, interest, listeners, matches,
    remembered: (element) => listening.has(element), watchListeners }) });
})();
