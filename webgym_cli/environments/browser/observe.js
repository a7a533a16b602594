// Runs in every document before its own scripts. Installs one hidden object, the eyes, that Python asks to
//   look()            list the interactive elements in the viewport, ids counting from 0 in document order;
//   locate()          say where one of them can be clicked now;
//   marked()          give the listed elements themselves;
//   watchListeners()  remember from now on which elements listen for clicks.
(() => {
  const KEY = Symbol.for("webgym.eyes");
  if (window[KEY]) return;

  const NATIVE = "a[href],area[href],button,input:not([type=hidden]),select,textarea,summary,option," +
    "[contenteditable=''],[contenteditable=true]";
  const ROLES = new Set(["button", "link", "checkbox", "radio", "tab", "option", "menuitem", "menuitemcheckbox",
    "menuitemradio", "switch", "textbox", "searchbox", "combobox", "slider", "spinbutton", "treeitem", "gridcell"]);
  const INPUT_ROLES = { button: "button", submit: "button", reset: "button", image: "button", checkbox: "checkbox",
    radio: "radio", range: "slider", number: "spinbutton", search: "searchbox", date: "date", time: "time",
    month: "month", week: "week", "datetime-local": "datetime", color: "color", file: "file", password: "password" };
  const CLICKS = new Set(["click", "mousedown", "mouseup", "pointerdown", "pointerup", "dblclick"]);
  const TOGGLES = ["aria-checked", "aria-pressed", "aria-selected"];
  const MIN_SIDE = 3, MOST_VISITED = 20000;
  const GRID = [0.5, 0.2, 0.8, 0.08, 0.92];
  const listening = new WeakSet();
  let marks = [];

  const watchListeners = () => {
    // Listeners can't be listed from within a page, so those for clicks are remembered as they are added.
    const add = EventTarget.prototype.addEventListener;
    EventTarget.prototype.addEventListener = function (type, ...rest) {
      if (CLICKS.has(type) && this instanceof Element) listening.add(this);
      return add.call(this, type, ...rest);
    };
  };

  const oneLine = (text) => {
    const line = `${(text || "").slice(0, 400).replace(/\s+/g, " ").trim().toWellFormed()}`; // pages replace methods
    return line.length > 80 ? line.slice(0, 79) + "…" : line;
  };

  const roleOf = (element) => {
    const told = (element.getAttribute("role") || "").trim().split(/\s+/)[0];
    if (told && told !== "presentation" && told !== "none") return told;
    const tag = element.localName;
    if (tag === "a" || tag === "area") return "link";
    if (tag === "input") return INPUT_ROLES[element.type] || "textbox";
    if (tag === "select") return element.multiple || element.size > 1 ? "listbox" : "combobox";
    return tag === "summary" ? "button" : tag;
  };

  const referenced = (element) => (element.getAttribute("aria-labelledby") || "").split(/\s+/)
    .map((id) => id && element.getRootNode().getElementById?.(id)?.textContent || "").join(" ");

  const nameOf = (element) => {
    const tag = element.localName;
    const labels = () => Array.from(element.labels || [], (label) => label.textContent).join(" ");
    const isField = tag === "input" || tag === "select" || tag === "textarea";
    const content = () => {
      if (isField) return /^(button|submit|reset)$/.test(element.type) ? element.value : "";
      return element.innerText ?? element.textContent;
    };
    const image = () => element.querySelector?.("img[alt],svg title");
    for (const source of [
      () => referenced(element), () => element.getAttribute("aria-label"), labels, content,
      () => element.getAttribute("alt"), () => element.getAttribute("title"),
      () => element.getAttribute("placeholder"), () => image()?.getAttribute("alt") || image()?.textContent,
      () => isField ? element.getAttribute("name") : "",
    ]) {
      const name = oneLine(source());
      if (name) return name;
    }
    return "";
  };

  const valueOf = (element) => {
    const tag = element.localName;
    if (tag === "input" && (element.type === "checkbox" || element.type === "radio")) return element.checked ? "checked" : "";
    if (tag === "input" && /^(button|submit|reset|image)$/.test(element.type)) return "";
    if (tag === "input" && element.type === "password") return "•".repeat(Math.min(element.value.length, 80));
    if (tag === "input" || tag === "textarea") return oneLine(element.value);
    if (tag === "select") return oneLine(Array.from(element.selectedOptions, (option) => option.label).join(", "));
    if (tag === "option") return element.selected ? "selected" : "";
    if (element.isContentEditable) return oneLine(element.innerText);
    const expanded = element.getAttribute("aria-expanded");
    if (expanded === "true" || expanded === "false") return expanded === "true" ? "expanded" : "collapsed";
    return (TOGGLES.find((attribute) => element.getAttribute(attribute) === "true") || "").slice(5);
  };

  // How sure we are that the element is meant to be acted on: 2 by its kind, 1 by a listener or a pointer, 0 not.
  const interest = (element, parent) => {
    if (element.matches(NATIVE)) {
      if (element.localName === "option") return element.closest("select[multiple],select[size]") ? 2 : 0;
      return 2;
    }
    const role = element.getAttribute("role");
    if (role && ROLES.has(role.trim().split(/\s+/)[0])) return 2;
    if (element === document.body || element === document.documentElement) return 0;
    if (element.hasAttribute("onclick") || typeof element.onclick === "function" || listening.has(element)) return 1;
    const tabIndex = element.getAttribute("tabindex");
    if (tabIndex !== null && Number(tabIndex) >= 0) return 1;
    if (element.localName === "label" || getComputedStyle(element).cursor !== "pointer") return 0;
    return parent && getComputedStyle(parent).cursor === "pointer" ? 0 : 1;
  };

  const clip = (rect, offset) => {
    const left = Math.max(rect.left + offset.x, 0), top = Math.max(rect.top + offset.y, 0);
    const width = Math.min(rect.right + offset.x, innerWidth) - left;
    const height = Math.min(rect.bottom + offset.y, innerHeight) - top;
    return width >= MIN_SIDE && height >= MIN_SIDE ? { left, top, width, height } : null;
  };

  // The visible box: of a link that wraps over lines, its largest line.
  const boxOf = (element, offset) => {
    const whole = clip(element.getBoundingClientRect(), offset);
    if (!whole) return null;
    const lines = getComputedStyle(element).display === "inline" ? element.getClientRects() : [];
    if (lines.length < 2) return whole;
    return Array.from(lines, (line) => clip(line, offset)).filter(Boolean)
      .reduce((best, line) => (!best || line.width * line.height > best.width * best.height ? line : best), null);
  };

  const reaches = (element, x, y, offset) => {
    const root = element.getRootNode();
    const hit = (root.elementFromPoint ? root : element.ownerDocument).elementFromPoint(x - offset.x, y - offset.y);
    if (!hit) return false;
    if (hit === element || element.contains(hit)) return true;
    const label = Element.prototype.closest.call(hit, "label");
    return Boolean(label && label.control === element);
  };

  // A point of the box where a click really lands on the element; null when something covers all of it.
  const pointOf = (element, box, offset) => {
    for (const fy of GRID) {
      for (const fx of GRID) {
        const x = box.left + box.width * fx, y = box.top + box.height * fy;
        if (reaches(element, x, y, offset)) return [x, y];
      }
    }
    return null;
  };

  const offsetOf = (element) => {
    const offset = { x: 0, y: 0 };
    for (let view = element.ownerDocument.defaultView; view && view !== window; view = view.parent) {
      const frame = view.frameElement, rect = frame.getBoundingClientRect();
      offset.x += rect.left + frame.clientLeft;
      offset.y += rect.top + frame.clientTop;
    }
    return offset;
  };

  const inside = (root, visit) => {
    for (const element of root.querySelectorAll("*")) {
      visit(element);
      if (element.shadowRoot) inside(element.shadowRoot, visit);
      if (element.localName === "iframe") {
        let inner = null;
        try { inner = element.contentDocument; } catch { /* another origin: its content can't be listed */ }
        if (inner) inside(inner, visit);
      }
    }
  };

  const seen = (element, sure) => {
    const size = element.getBoundingClientRect();
    if (size.width < MIN_SIDE || size.height < MIN_SIDE) return null;
    const offset = offsetOf(element);
    const box = boxOf(element, offset);
    if (!box) return null;
    // A mere listener on something as big as the screen is delegation, not a thing to click.
    if (sure < 2 && box.width * box.height > 0.9 * innerWidth * innerHeight) return null;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) return null;
    const point = pointOf(element, box, offset);
    return point && { element, sure, box, point };
  };

  const same = (a, b) => Math.abs(a.left - b.left) < 4 && Math.abs(a.top - b.top) < 4 &&
    Math.abs(a.width - b.width) < 8 && Math.abs(a.height - b.height) < 8;

  // Of nested finds one is kept where they mean one thing: the outer, unless it only frames the inner control.
  const withoutRepeats = (found) => {
    const index = new Map(found.map((find) => [find.element, find]));
    const dropped = new Set();
    for (const find of found) {
      if (find.element.localName === "option") continue;
      for (let above = find.element.parentElement; above; above = above.parentElement) {
        const outer = index.get(above);
        if (!outer || dropped.has(outer)) continue;
        const text = oneLine(find.element.textContent);
        const alike = same(outer.box, find.box) || (text && text === oneLine(outer.element.textContent));
        if (outer.sure < find.sure) dropped.add(outer);
        else if (alike && find.element.matches("button,input,select,textarea")) dropped.add(outer);
        else if (alike) dropped.add(find);
        break;
      }
    }
    return found.filter((find) => !dropped.has(find));
  };

  const look = ({ limit, detail }) => {
    const found = [];
    let visited = 0;
    inside(document, (element) => {
      // On a heavy page the rest is left out: what comes late in the document is seldom in sight.
      if (found.length >= limit * 2 || ++visited > MOST_VISITED) return;
      // A form is no thing to act on, and its fields' names hide its methods (<input name="matches">).
      if (element instanceof HTMLFormElement) return;
      const sure = interest(element, element.parentElement);
      const find = sure && seen(element, sure);
      if (find) found.push(find);
    });
    const kept = withoutRepeats(found).slice(0, limit);
    marks = kept.map((find) => find.element);
    return kept.map(({ element, box, point }, id) => {
      const told = { id, role: roleOf(element), name: nameOf(element), value: valueOf(element), point,
        box: [box.left, box.top, box.width, box.height].map((side) => Math.round(side * 100) / 100) };
      if (detail) told.detail = { ...element.dataset, class: element.getAttribute("class") || "", id: element.id, tag: element.localName, typed: element.value ?? "" };
      return told;
    });
  };

  const locate = (id) => {
    const element = marks[id];
    if (!element) return { error: "unknown", count: marks.length };
    if (!element.isConnected) return { error: "gone" };
    const offset = offsetOf(element);
    let box = boxOf(element, offset), point = box && pointOf(element, box, offset);
    if (!point) {
      element.scrollIntoView({ block: "center", inline: "nearest", behavior: "instant" });
      box = boxOf(element, offsetOf(element));
      point = box && pointOf(element, box, offsetOf(element));
    }
    return point ? { point } : { error: "covered" };
  };

  const hideCaret = () => {
    // A blinking caret would make two screenshots of the same page differ.
    const sheet = new CSSStyleSheet();
    sheet.replaceSync("* { caret-color: transparent !important; }");
    document.adoptedStyleSheets.push(sheet);
  };

  Object.defineProperty(window, KEY, { value: Object.freeze({ look, locate, marked: () => marks.slice(), watchListeners }) });
  hideCaret();
})();
