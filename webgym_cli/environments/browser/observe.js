// Runs in every document before its own scripts, after names.js and kinds.js. Installs one hidden object, the eyes, that Python asks
//   look()            list the interactive elements in the viewport, ids counting from 0 in document order;
//   unlisted()        how many more there were than the look was to list;
//   locate()          say where one of them can be clicked now;
//   marked()          give the listed elements themselves;
//   opaque()          say where frames of other origins are, whose elements are listed from within;
//   through()         say at which of some points such a frame is what a click reaches;
//   watchListeners()  remember from now on which elements listen for clicks.
(() => {
  const KEY = Symbol.for("webgym.eyes");
  if (window[KEY]) return;

  const { roleOf, nameOf, valueOf, textOf, oneLine, editable, rootOf, parentOf } = window[Symbol.for("webgym.names")];
  const { interest, listeners, matches, remembered, watchListeners } = window[Symbol.for("webgym.kinds")];
  // What is one thing, whatever it is made of.
  const WHOLE = "button,a[href],summary,[role=button],[role=link],[role=tab],[role=option],[role^=menuitem]";
  const ROWS = "[role=option],[role=treeitem],[role^=menuitem]";
  const HIDDEN_INPUTS = /^(checkbox|radio|file)$/;
  const EDITORS = "[role=code],[role=textbox],.CodeMirror,.ace_editor,[class*=editor]";
  const MIN_SIDE = 3, MOST_VISITED = 20000, MOST_FOUND = 2000;
  // A listener's element may fill so much of the screen.
  const MOST_OF_SCREEN = 0.25;
  const GRID = [0.5, 0.2, 0.8, 0.08, 0.92], POINTS = 24, EDGE = 3, THIN = 8;
  let marks = [], left = 0;

  const clip = (rect, offset) => {
    const left = Math.max(rect.left + offset.x, 0), top = Math.max(rect.top + offset.y, 0);
    const width = Math.min(rect.right + offset.x, innerWidth) - left;
    const height = Math.min(rect.bottom + offset.y, innerHeight) - top;
    return width >= MIN_SIDE && height >= MIN_SIDE ? { left, top, width, height } : null;
  };

  // The visible box: of a link that wraps over lines, its largest line.
  const boxOf = (element, offset) => {
    let rect = element.getBoundingClientRect();
    if (getComputedStyle(element).display === "contents") {
      const range = element.ownerDocument.createRange();
      range.selectNodeContents(element);
      rect = range.getBoundingClientRect();
    }
    const whole = clip(rect, offset);
    const lines = getComputedStyle(element).display === "inline" ? element.getClientRects() : [];
    if (!whole || lines.length < 2) return whole;
    return Array.from(lines, (line) => clip(line, offset)).filter(Boolean)
      .reduce((best, line) => (!best || line.width * line.height > best.width * best.height ? line : best), null);
  };

  const innerDocument = (element) => {
    if (!/^(iframe|frame|object|embed)$/.test(element.localName)) return null;
    try { return element.contentDocument || element.getSVGDocument?.() || null; } catch { return null; } // another origin
  };

  const FRAMES = "iframe,frame,object,embed";
  const isOpaque = (element) => matches(element, FRAMES) && !innerDocument(element);

  const opaque = () => {
    const boxes = [];
    inside(document, (element) => {
      const box = isOpaque(element) && element.checkVisibility({ visibilityProperty: true }) && clip(element.getBoundingClientRect(), offsetOf(element));
      if (box) boxes.push([box.left, box.top, box.width, box.height]);
    });
    return boxes;
  };

  const through = (points) => points.map(([x, y]) => {
    const hit = deepest(x, y);
    return Boolean(hit) && isOpaque(hit);
  });

  // The element under a point of the viewport, through shadow roots and documents that can be read.
  const deepest = (x, y) => {
    for (let root = document, found = null; ;) {
      const inner = root.elementFromPoint(x, y);
      if (!inner || inner === found) return found;
      found = inner;
      const content = innerDocument(inner);
      if (content) {
        const box = inner.getBoundingClientRect();
        [x, y, root] = [x - box.left - inner.clientLeft, y - box.top - inner.clientTop, content];
      } else if (rootOf(inner)) root = rootOf(inner);
      else return found;
    }
  };

  const reaches = (element, hit) => {
    for (let at = hit; at; at = parentOf(at)) {
      if (at === element) return true;
      if (at.localName === "label" && at.control === element) return true;
    }
    return false;
  };

  // Points of the box to try: all over it, at its edge where it is full of others, and on a line that is drawn.
  const candidates = function* (element, { left, top, width, height }, isFull) {
    if (element instanceof SVGGeometryElement && element.localName === "path") {
      const length = element.getTotalLength(), matrix = element.getScreenCTM();
      for (const share of matrix ? GRID : []) {
        const { x, y } = element.getPointAtLength(length * share).matrixTransform(matrix);
        if (x >= left && x <= left + width && y >= top && y <= top + height) yield [x, y];
      }
    }
    for (const fy of GRID) for (const fx of GRID) yield [left + width * fx, top + height * fy];
    if (!isFull) return;
    for (const share of GRID) {
      yield* [left + EDGE, left + width - EDGE].map((x) => [x, top + height * share]);
      yield* [top + EDGE, top + height - EDGE].map((y) => [left + width * share, y]);
    }
  };

  // A point of the box where a click lands on the element, rather not on what is listed within; null when it is covered.
  const pointOf = (element, box, within = []) => {
    let other = null;
    for (const [x, y] of candidates(element, box, within.length > 0)) {
      const hit = deepest(x, y);
      if (hit && reaches(element, hit) && !within.some((inner) => reaches(inner, hit))) return [x, y];
      if (hit && reaches(element, hit)) other ||= [x, y];
    }
    return other;
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
      if (visit(element) === false) return;
      const inner = rootOf(element) || innerDocument(element);
      if (inner) inside(inner, visit);
    }
  };

  // What lies on top at points all over the screen, wherever in a heavy document it stands.
  const onTop = function* () {
    for (let row = 0.5; row < POINTS; row++) {
      for (let column = 0.5; column < POINTS; column++) {
        for (let at = deepest(innerWidth * column / POINTS, innerHeight * row / POINTS); at; at = parentOf(at)) yield at;
      }
    }
  };

  const place = (element, transparent = false) => {
    const box = boxOf(element, offsetOf(element));
    const shown = element.checkVisibility({ visibilityProperty: true, opacityProperty: !transparent });
    if (!box || !(shown || getComputedStyle(element).display === "contents")) return null;
    const point = pointOf(element, box);
    return point && { face: element, box, point };
  };

  // Where an element is seen and clicked: a hidden input by its label, a code editor's field by the editor.
  const facing = (element) => {
    const seen = place(element, element.localName === "input" && HIDDEN_INPUTS.test(element.type));
    const small = seen && (seen.box.width < 8 || seen.box.height < 8);
    if (element.localName === "input" && HIDDEN_INPUTS.test(element.type) && (!seen || small)) {
      for (const label of element.labels || []) {
        const stands = place(label);
        if (stands) return stands;
      }
    }
    const writes = element.checkVisibility() && (element.localName === "textarea" || editable(element) || element.getAttribute("role") === "textbox");
    if (writes && (!seen || small)) {
      const editor = parentOf(element)?.closest?.(EDITORS);
      return (editor && place(editor)) || seen;
    }
    return seen;
  };

  const seen = (element, sure) => {
    const find = facing(element);
    if (!find) return null;
    const share = area(find) / (innerWidth * innerHeight);
    // A mere listener on something large is delegation, not a thing to click.
    const most = sure === 2 || remembered(element) || matches(element, "canvas,svg") ? 0.9 : MOST_OF_SCREEN;
    if (sure < 3 && share > most) return null;
    // what lies between columns or panes, to change their width
    if (sure === 1 && Math.min(find.box.width, find.box.height) < THIN) return null;
    if (sure === 1 && !remembered(element) && nameOf(element).endsWith("…")) return null;
    return { element, sure, ...find };
  };

  const same = (a, b) => Math.abs(a.left - b.left) < 4 && Math.abs(a.top - b.top) < 4 &&
    Math.abs(a.width - b.width) < 8 && Math.abs(a.height - b.height) < 8;

  const within = (point, box) => point[0] >= box.left && point[0] <= box.left + box.width &&
    point[1] >= box.top && point[1] <= box.top + box.height;

  const area = ({ box }) => box.width * box.height;

  // Of a find within another: "outer" or "inner", whichever only repeats or frames the other one; else null.
  const needless = (outer, inner) => {
    if (outer.sure === 1) return "outer";
    if (inner.face !== inner.element && matches(outer.element, ROWS)) return "inner";
    // a column's head is more than the field that filters the column
    if (matches(outer.element, "th,[role=columnheader]") && matches(inner.element, "input,select") && textOf(outer.element).trim()) return null;
    if (inner.sure < 3 && matches(outer.element, WHOLE)) return "inner";
    const text = oneLine(textOf(inner.element));
    const alike = same(outer.box, inner.box) || (text && text === oneLine(textOf(outer.element))) ||
      (inner.sure === 3 && nameOf(inner.element) && nameOf(inner.element) === nameOf(outer.element));
    if (outer.sure < inner.sure) return alike || area(inner) * 2 > area(outer) ? "outer" : null;
    if (!alike) return null;
    return inner.element.matches("button,input,select,textarea") || !within(outer.point, inner.box) ? "outer" : "inner";
  };

  // Of nested finds one is kept where they mean one thing: the outer, unless it only frames the inner control.
  const withoutRepeats = (found) => {
    const index = new Map(found.map((find) => [find.element, find]));
    const dropped = new Set();
    const faces = new Map(found.filter((find) => find.face !== find.element).map((find) => [find.face, find]));
    for (const face of faces.keys()) if (index.has(face)) dropped.add(index.get(face));
    for (const find of found) {
      if (find.element.localName === "option") continue;
      for (let above = parentOf(find.element); above; above = parentOf(above)) {
        if (find.sure === 1 && faces.has(above)) dropped.add(find);
        const outer = index.get(above);
        if (!outer || dropped.has(outer)) continue;
        const drop = needless(outer, find);
        if (drop) dropped.add(drop === "outer" ? outer : find);
        if (drop !== "outer") break;
      }
    }
    return found.filter((find) => !dropped.has(find));
  };

  // Where not all can be listed: what lies over the page first, then the surest, in document order.
  const foremost = (kept, limit) => {
    const rank = ({ element, sure }) => {
      for (let at = element; at; at = parentOf(at)) {
        if (/^(fixed|sticky)$/.test(getComputedStyle(at).position) || matches(at, "dialog,[aria-modal=true],[popover]")) return 9;
      }
      return sure;
    };
    const best = new Set(kept.map((find, at) => [rank(find), at, find])
      .sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, limit).map(([, , find]) => find));
    return kept.filter((find) => best.has(find));
  };

  const look = ({ limit, detail }, ask) => {
    const found = [], known = new Set(), listens = listeners(ask);
    const visit = (element) => {
      if (known.has(element) || found.length >= MOST_FOUND) return;
      known.add(element);
      // A form is no thing to act on, and its fields' names hide its methods (<input name="matches">).
      if (matches(element, "form")) return;
      const rect = element.getBoundingClientRect();
      const far = element.ownerDocument === document && rect.height > 0 &&
        (rect.top > innerHeight || rect.bottom < 0) && element.localName !== "input";
      const sure = far ? 0 : interest(element, listens);
      const find = sure && seen(element, sure);
      if (find) found.push(find);
    };
    inside(document, (element) => (known.size < MOST_VISITED ? visit(element) : false));
    if (known.size >= MOST_VISITED) for (const element of onTop()) visit(element);
    const all = withoutRepeats(found), kept = all.length > limit ? foremost(all, limit) : all;
    left = all.length - kept.length;
    marks = kept.map(({ element, face }) => ({ element, face, within: [] }));
    const index = new Map(kept.flatMap(({ element, face }, id) => [[face, id], [element, id]]));
    for (const { element } of kept) {
      let above = parentOf(element);
      while (above && !index.has(above)) above = parentOf(above);
      if (above) marks[index.get(above)].within.push(element);
    }
    for (const [id, { face, within }] of marks.entries()) {
      if (within.length) kept[id].point = pointOf(face, kept[id].box, within);
    }
    return kept.map(({ element, box, point }, id) => {
      const told = { id, role: roleOf(element), name: nameOf(element), value: valueOf(element), point,
        box: [box.left, box.top, box.width, box.height].map((side) => Math.round(side * 100) / 100) };
      if (detail) told.detail = { ...element.dataset, class: element.getAttribute("class") || "", id: element.id, tag: element.localName, typed: element.value ?? "" };
      return told;
    });
  };

  const locate = (id) => {
    if (!marks[id]) return { error: "unknown", count: marks.length };
    const { face, within } = marks[id];
    if (!face.isConnected) return { error: "gone" };
    const find = () => { const box = boxOf(face, offsetOf(face)); return box && pointOf(face, box, within); };
    let point = find();
    if (!point) {
      face.scrollIntoView({ block: "center", inline: "nearest", behavior: "instant" });
      point = find();
    }
    return point ? { point } : { error: "covered" };
  };

  const hideCaret = () => {
    // A blinking caret would make two screenshots of the same page differ.
    const sheet = new CSSStyleSheet();
    sheet.replaceSync("* { caret-color: transparent !important; }");
    document.adoptedStyleSheets.push(sheet);
  };

  Object.defineProperty(window, KEY, { value: Object.freeze({ look, locate, unlisted: () => left, opaque, through,
    marked: () => marks.map(({ element }) => element), watchListeners }) });
  hideCaret();
})();
