// Documents within the page: frames that it can read, numbers of the others, and hit tests through both and shadow roots.
webgym.frames = (() => {
  const { getter, matches, memo, rectOf: ownRectOf, rootOf, styleOf, treeOf } = webgym.names, { ask } = webgym.roles;
  const MIN_SIDE = 3, MOST_HOSTS = 50;

  // A form's fields can shadow its properties.
  const documentOf = getter(Node, "ownerDocument");
  const rectOf = memo((element) => element.localName === "area" && areaOf(element) || ownRectOf(element));

  // The part of its picture that an image map's area is; it has no box of its own.
  const areaOf = (area) => {
    const name = area.closest("map")?.name, image = name && area.getRootNode().querySelector(`img[usemap="#${CSS.escape(name)}"]`);
    if (!image) return null;
    const { left, top, width, height } = ownRectOf(image), at = area.coords.split(/[\s,]+/).map(Number);
    if (area.shape === "default" || at.length < 3) return { left, top, width, height };
    const [x, y, radius] = at, sides = at.length === 3 ? [x - radius, y - radius, x + radius, y + radius] : at;
    const range = (odd) => { const some = sides.filter((_, index) => index % 2 === odd); return [Math.min(...some), Math.max(...some)]; };
    const [x0, x1] = range(0), [y0, y1] = range(1);
    return { left: left + x0, top: top + y0, width: x1 - x0, height: y1 - y0 };
  };

  // The part of a rectangle between limits; null if it is too small to be seen.
  const intersect = (rect, limits) => {
    const left = Math.max(rect.left, limits.left), top = Math.max(rect.top, limits.top);
    const width = Math.min(rect.left + rect.width, limits.left + limits.width) - left;
    const height = Math.min(rect.top + rect.height, limits.top + limits.height) - top;
    return width >= MIN_SIDE && height >= MIN_SIDE ? { left, top, width, height } : null;
  };

  // A rectangle of a document, as far as it is in the viewport of the page.
  const clip = ({ left, top, width, height }, { x, y, scale }) =>
    intersect({ left: x + scale * left, top: y + scale * top, width: scale * width, height: scale * height },
      { left: 0, top: 0, width: innerWidth, height: innerHeight });

  const FRAMES = /^(iframe|frame|object|embed)$/;
  const innerDocument = (element) => {
    if (!FRAMES.test(element.localName)) return null;
    try { return element.contentDocument || element.getSVGDocument?.() || null; } catch { return null; } // another origin
  };

  // The element with the focus, through shadow roots and readable documents.
  const focused = () => {
    let element = document.activeElement;
    while (element) {
      const deeper = rootOf(element)?.activeElement || innerDocument(element)?.activeElement;
      if (!deeper) break;
      element = deeper;
    }
    return element;
  };

  const isOpaque = (element) => Boolean(element) && FRAMES.test(element.localName) && !innerDocument(element);

  // Where a frame's content begins, in coordinates of the frame's own document, and how large its pixels are there.
  const contentOf = (frame) => {
    const rect = rectOf(frame), style = styleOf(frame), drawn = rect.width / frame.offsetWidth, scale = Math.abs(drawn - 1) > 0.01 ? drawn : 1;
    return { x: rect.left + scale * (frame.clientLeft + parseFloat(style.paddingLeft)),
      y: rect.top + scale * (frame.clientTop + parseFloat(style.paddingTop)), scale };
  };

  // Opaque frames by number: Python resolves the element behind a number to the frame's document.
  const frames = [];
  const numberOf = (frame) => (frames.includes(frame) ? frames.indexOf(frame) : frames.push(frame) - 1);
  const originOf = (number) => {
    const frame = frames[number];
    if (!frame?.isConnected) return null;
    const offset = offsetOf(frame), content = contentOf(frame);
    return [offset.x + offset.scale * content.x, offset.y + offset.scale * content.y, offset.scale * content.scale];
  };

  const opaque = () => allOf(document).filter((element) => isOpaque(element) && element.checkVisibility({ visibilityProperty: true }) &&
    clip(rectOf(element), offsetOf(element))).map(numberOf);

  const through = (points) => points.map(([x, y]) => isOpaque(deepest(x, y)));

  // The element at a viewport point, through shadow roots and same-origin documents.
  const deepest = (x, y) => {
    for (let root = document, found = null; ;) {
      const inner = root.elementFromPoint(x, y);
      if (!inner || inner === found) return found;
      found = inner;
      const content = innerDocument(inner);
      if (content) {
        const origin = contentOf(inner);
        [x, y, root] = [(x - origin.x) / origin.scale, (y - origin.y) / origin.scale, content];
      } else if (rootOf(inner)) root = rootOf(inner);
      else return found;
    }
  };

  // The same point is asked for by nested elements.
  const hits = memo((place) => deepest(...place.split(" ").map(Number)));
  const hitAt = (x, y) => hits(`${x} ${y}`);

  const HERE = Object.freeze({ x: 0, y: 0, scale: 1 });
  const offsetOf = (element) => {
    if (documentOf(element) === document) return HERE;
    const offset = { ...HERE };
    for (let view = documentOf(element).defaultView; view && view !== window; view = view.parent) {
      const origin = contentOf(view.frameElement);
      offset.x = origin.x + origin.scale * offset.x;
      offset.y = origin.y + origin.scale * offset.y;
      offset.scale *= origin.scale;
    }
    return offset;
  };

  // The elements of a document or shadow root, each followed by those within its own shadow root or document.
  const allOf = memo((root) => Array.from(root.querySelectorAll("*")).flatMap((element) => {
    const inner = rootOf(element) || innerDocument(element);
    return inner ? [element, ...allOf(inner)] : element;
  }));

  const isOpen = memo((tree) => !documentOf(tree) || tree.host && tree.mode === "open" && isOpen(treeOf(tree.host)));

  // Handlers that a framework keeps for its root, as `stand_ins.js` tells, which no list of listeners has.
  const hearKept = () => {
    const all = allOf(document).filter((element) => isOpen(treeOf(element)));
    for (const [inner, elements] of Map.groupBy(all, documentOf)) {
      for (const [at, types] of Object.entries(ask(inner, null, "webgym-handlers"))) {
        // a kept press is another kind than the listener of one: many panels have it to keep the focus
        const names = types.toLowerCase().replace("double", "dbl").replaceAll("down", "hold");
        webgym.kinds.hear(elements[at], names.split(" "));
      }
    }
  };

  // Custom elements that may have a closed shadow root, each reported once: only CDP can tell.
  const asked = new WeakSet();
  const mayHost = (element) => element.localName.includes("-") && !rootOf(element) && !asked.has(element) &&
    matches(element, ":defined"); // an isolated world has no custom elements of its own
  const hidden = () => Array.prototype.filter.call(document.querySelectorAll("body :not(form)"), mayHost);
  const hosts = () => hidden().slice(0, MOST_HOSTS).map((element) => asked.add(element) && element);

  return Object.freeze({ allOf, clip, deepest, documentOf, focused, frame: (number) => frames[number], hearKept, hitAt, hosts, innerDocument, intersect, isOpaque,
    mayHide: () => hidden().length > 0, numberOf, offsetOf, opaque, originOf, rectOf, through });
})();
