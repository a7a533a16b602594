// Text observations of a page, called from Python:
//   read()     return the visible page as a flat tree of elements and texts; listed elements have their ids.
//   tree()     return the same as an accessibility tree: roles, names, levels and texts.
webgym.html = (() => {
  const UNSHOWN = new Set(["script", "style", "noscript", "template", "head", "meta", "link", "title", "base", "object",
    "embed", "canvas", "audio", "video", "picture", "source", "track", "param", "datalist"]);
  const CLOSED = new Set(["input", "textarea", "img", "select", "option"]);
  const MOST_NODES = 20000, MOST_OPTIONS = 200, LONGEST = 500;
  // Ten times as much as a policy is shown, since wrappers and repeated texts are left out later.
  const MOST_CHARACTERS = 1000000, MOST_TREE = 50000;
  const sizeOf = (told) => told.reduce((sum, [, value]) => sum + value.length, 0);

  // Taken before the page's scripts run, which may replace these; a form's field named "children" would shadow the
  // form's own property.
  const { byIds, getter, parentNode, roleOf, rootOf, textOf, title } = webgym.names;
  const { clip, innerDocument, offsetOf, rectOf } = webgym.frames;
  const method = (kind, name) => {
    const call = kind.prototype[name];
    return (object, ...values) => Reflect.apply(call, object, values);
  };
  const firstChild = getter(Node, "firstChild"), nextSibling = getter(Node, "nextSibling");
  const nodeType = getter(Node, "nodeType"), data = getter(CharacterData, "data"), localName = getter(Element, "localName");
  const attribute = method(Element, "getAttribute"), rectsOf = method(Element, "getClientRects");
  const visible = method(Element, "checkVisibility");

  const childrenOf = function* (node) {
    for (let child = firstChild(node); child; child = nextSibling(child)) yield child;
  };

  const line = (text) => `${String(text ?? "").slice(0, 4 * LONGEST).replace(/\s+/g, " ").trim().toWellFormed()}`;
  const short = (text) => `${line(text).slice(0, LONGEST).toWellFormed()}`;

  const textInSight = (text) => {
    const range = document.createRange();
    range.selectNodeContents(text);
    return Array.prototype.some.call(range.getClientRects(), (rect) => clip(rect, offsetOf(text)));
  };

  // Ancestors of listed elements are always shown.
  const waysTo = (marked) => {
    const ways = new Set();
    for (const element of marked) {
      for (let at = element; at && !ways.has(at); at = parentNode(at) || at.host || at.defaultView?.frameElement) ways.add(at);
    }
    return ways;
  };

  const statusOf = (element, tag) => {
    const told = [];
    if (tag === "input" && (element.type === "checkbox" || element.type === "radio") && element.checked) told.push("checked");
    if (attribute(element, "disabled") !== null) told.push("disabled");
    const expanded = attribute(element, "aria-expanded");
    if (expanded === "true" || expanded === "false") told.push(expanded === "true" ? "expanded" : "collapsed");
    for (const name of ["aria-checked", "aria-pressed", "aria-selected"]) {
      if (attribute(element, name) === "true") told.push(name.slice(5));
    }
    return told.join(" ");
  };

  const valueOf = (element, tag) => {
    if (tag === "input" && element.type === "password") return "•".repeat(Math.min(element.value.length, 80));
    return tag === "input" || tag === "textarea" ? element.value : "";
  };

  // Attributes of an element that are shown. Never the page's own ids and numbers.
  const attributesOf = (element, tag, box) => {
    const image = tag === "img" ? attribute(element, "alt") : "";
    const told = { title: attribute(element, "title"), type: tag === "input" ? element.type : "",
      placeholder: attribute(element, "placeholder"), value: valueOf(element, tag),
      "data-value": attribute(element, "data-value"), "data-text": attribute(element, "aria-label") || image,
      "data-testid": attribute(element, "data-testid"), "data-status": statusOf(element, tag),
      "data-bbox": box ? box.map((side) => Math.round(side)).join(",") : "" };
    return Object.entries(told).map(([name, value]) => [name, short(value)]).filter(([, value]) => value);
  };

  const optionsOf = (select, depth, ids) => Array.from(select.options).slice(0, MOST_OPTIONS).flatMap((option) => {
    const told = option.selected ? [["selected", "selected"]] : [];
    return [[depth, "option", ids.get(option) ?? null, told], [depth + 1, short(option.label)]];
  });

  // All elements of the document as listed by WebRL's code: attributes, first text, and whether they are visible.
  const firstText = (element) => {
    let told = "";
    for (const child of childrenOf(element)) {
      if (nodeType(child) === Node.TEXT_NODE) told += data(child);
      else if (nodeType(child) === Node.ELEMENT_NODE && !["script", "style"].includes(localName(child))) break;
    }
    return short(told);
  };
  const ownTexts = (element) => Array.from(childrenOf(element))
    .filter((child) => nodeType(child) === Node.TEXT_NODE && data(child).trim()).map((child) => line(data(child))).join(",");
  const toldOf = (element, tag, box) => {
    const chosen = tag === "select" ? element.options[element.selectedIndex] : null, own = (name) => attribute(element, name);
    const isField = tag === "input" || tag === "textarea", checks = tag === "input" && own("type") === "checkbox";
    const isChosen = tag === "option" && element.selected;
    const status = checks ? (element.checked ? "checked" : "not-checked") : isChosen ? "selected" : own("data-status");
    const told = { title: own("title"), value: own("value"), type: own("type") === "hidden" ? "" : own("type"),
      placeholder: own("placeholder"), selected: own("selected"),
      "data-value": isField ? valueOf(element, tag) : tag === "select" ? element.value : own("data-value"),
      "data-text": tag === "select" ? chosen?.text : firstChild(element) ? ownTexts(element) : own("data-text"),
      "data-testid": own("data-testid"), "data-label": own("data-label"),
      "data-bbox": box ? box.join(",") : own("data-bbox"), "data-status": status };
    return Object.entries(told).map(([name, value]) => [name, short(value)]).filter(([, value]) => value);
  };
  const listReleased = (ids) => {
    const nodes = [], stack = [[document.documentElement, 0]];
    let budget = MOST_CHARACTERS;
    while (stack.length && nodes.length < MOST_NODES && budget > 0) {
      const [node, depth] = stack.pop(), tag = localName(node), rect = rectsOf(node)[0];
      if (tag === "script" || tag === "style") continue;
      const [left, top] = rect ? [Math.round(rect.left), Math.round(rect.top)] : [0, 0];
      const box = rect ? [left, top, Math.round(rect.right) - left, Math.round(rect.bottom) - top] : null;
      const sighted = Boolean(box) && left + box[2] >= 0 && left <= innerWidth && top + box[3] >= 0 && top <= innerHeight;
      const told = toldOf(node, tag, box), text = firstText(node), seen = sighted && attribute(node, "aria-hidden") !== "true";
      nodes.push([depth, tag, ids.get(node) ?? null, told, text, seen]);
      if (seen) budget -= text.length + sizeOf(told);
      for (const child of Array.from(childrenOf(node)).reverse()) {
        if (nodeType(child) === Node.ELEMENT_NODE) stack.push([child, depth + 1]);
      }
    }
    return nodes;
  };

  // The texts and elements of the page that may be seen, depth first; of closed elements nothing within. Marked ones and
  // the ways to them always.
  const walk = function* (ids, ways) {
    const stack = [[document.documentElement, 0]];
    for (let visited = 0; stack.length && visited < MOST_NODES; visited++) {
      const [node, depth] = stack.pop();
      if (!node) continue;
      if (nodeType(node) === Node.TEXT_NODE) {
        const text = short(data(node)), holder = parentNode(node);
        const shown = text && (nodeType(holder) !== Node.ELEMENT_NODE || visible(holder, { visibilityProperty: true, opacityProperty: true }));
        if (shown && textInSight(node)) yield { text, depth };
        continue;
      }
      if (nodeType(node) !== Node.ELEMENT_NODE) continue;
      const tag = localName(node), wanted = ways.has(node);
      if (!wanted && (UNSHOWN.has(tag) || attribute(node, "aria-hidden") === "true")) continue;
      if (!wanted && !visible(node) && getComputedStyle(node).display !== "contents") continue;
      const sighted = ids.has(node) || Boolean(clip(rectOf(node), offsetOf(node)));
      if (CLOSED.has(tag) && !sighted) continue;
      yield { node, depth, sighted };
      if (CLOSED.has(tag)) continue;
      const assigned = tag === "slot" ? node.assignedNodes() : [], root = innerDocument(node)?.documentElement || rootOf(node) || node;
      for (const child of (assigned.length ? assigned : Array.from(childrenOf(root))).toReversed()) stack.push([child, depth + 1]);
    }
  };

  const read = ({ limit, released }) => {
    const listed = webgym.observe.look({ limit }), marked = webgym.observe.marked();
    const ids = new Map(marked.map((element, id) => [element, id])), ways = waysTo(marked);
    const page = { listed, url: location.href, title: title() };
    if (released) return { ...page, nodes: listReleased(ids) };
    const nodes = [];
    let budget = MOST_CHARACTERS;
    for (const { node, text, depth, sighted } of walk(ids, ways)) {
      const id = ids.get(node) ?? null, tag = text ? "" : localName(node);
      const told = sighted ? attributesOf(node, tag, id === null ? null : listed[id].box) : [];
      nodes.push(text ? [depth, text] : [depth, tag, id, told]);
      if (tag === "select") nodes.push(...optionsOf(node, depth + 1, ids));
      budget -= text ? text.length : sizeOf(told);
      if (budget <= 0) break;
    }
    return { ...page, nodes };
  };

  const INLINE = /^(a|abbr|b|bdi|cite|code|em|font|i|label|mark|q|s|small|span|strong|sub|sup|time|u|var)$/;
  const NO_ROLE = /^(generic|paragraph|presentation|none)$/;
  const levelOf = (element, role) => (role !== "heading" ? 0 :
    Number(attribute(element, "aria-level")) || Number((/^h([1-6])$/.exec(localName(element)) || [])[1]) || 0);

  // The name of what is not marked, unless its content is its name.
  const labelOf = (element) => short(byIds(element, "aria-labelledby").map((part) => textOf(part)).join(" ") ||
    ["aria-label", "alt", "title"].map((name) => attribute(element, name)).find(Boolean));

  // What is in sight as an accessibility tree: texts, and elements that are marked or have a role. `marks`: whether the
  // look before has marked elements.
  const tree = ({ marks }) => {
    const marked = marks ? webgym.observe.marked() : [], ids = new Map(marked.map((element, id) => [element, id])), nodes = [];
    let budget = MOST_TREE;
    for (const { node, text, depth, sighted } of walk(ids, waysTo(marked))) {
      const id = ids.get(node) ?? null, role = text ? "" : roleOf(node);
      if (!text && id === null && (!sighted || NO_ROLE.test(role))) { // it ends what is beside it, and a line of text
        nodes.push([depth, INLINE.test(localName(node)) ? "" : "\n"]);
        continue;
      }
      const name = text || id !== null ? "" : labelOf(node);
      nodes.push(text ? [depth, text] : [depth, role, id, name, levelOf(node, role)]);
      budget -= (text || name).length + role.length + 1;
      if (budget <= 0) break;
    }
    return nodes;
  };

  return Object.freeze({ read, tree });
})();
