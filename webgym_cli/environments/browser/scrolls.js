// What the wheel moves, and whether it, a drag or keys had an effect.
webgym.scrolls = (() => {
  const { atOnce, inside, nameOf, oneLine, parentNode, parentOf, roleOf, treeOf } = webgym.names;
  const { allOf, deepest, isOpaque } = webgym.frames;
  const { boxOf, pointOf } = webgym.geometry;
  const { until } = webgym.waits;
  const MOVE_MS = 200, QUIET_MS = 60, MOST_CONTAINERS = 3;

  // Whether an element can be scrolled up, down, left or right. Text from right to left begins at its right end.
  const canScroll = (element, way) => {
    const across = /left|right/.test(way), at = element[across ? "scrollLeft" : "scrollTop"];
    const room = across ? element.scrollWidth - element.clientWidth : element.scrollHeight - element.clientHeight;
    if (room <= 1) return false;
    const { direction, overflowX, overflowY } = getComputedStyle(element), first = across && direction === "rtl" ? -room : 0;
    return (/down|right/.test(way) ? at < first + room - 1 : at > first) && (element === element.ownerDocument.scrollingElement ||
      /auto|scroll/.test(across ? overflowX : overflowY) || element.localName === "textarea");
  };

  // What the wheel moves at a point.
  const scrollerAt = ([x, y], way) => {
    let at = deepest(x, y);
    while (at && !isOpaque(at) && !canScroll(at, way)) at = parentOf(at) || at.ownerDocument.defaultView.frameElement;
    return at;
  };

  // The point at which to turn the wheel: the middle, unless only an element elsewhere can scroll in this direction.
  const scrollable = (way) => atOnce(() => {
    const middle = [innerWidth / 2, innerHeight / 2];
    if (scrollerAt(middle, way)) return middle;
    let best = null, most = 0;
    for (const element of allOf(document)) {
      if (!isOpaque(element) && !canScroll(element, way)) continue;
      const box = boxOf(element), point = box && pointOf(element, box);
      // what a frame of another origin can do is not known
      const seen = point ? box.width * box.height / (isOpaque(element) ? 4 : 1) : 0;
      if (seen > most) [best, most] = [point, seen];
    }
    return best || middle;
  });

  // The point at which to turn the wheel, the size of what it moves there, and whether a scroll without a place moves another thing.
  const wheelAt = (place, way) => {
    const point = place || scrollable(way), there = scrollerAt(point, way);
    const { clientWidth, clientHeight } = there && !isOpaque(there) ? there : document.documentElement;
    return { point, size: [clientWidth, clientHeight], apart: Boolean(place && there) && there !== scrollerAt(scrollable(way), way) };
  };

  // Whether the wheel or a drag had an effect. Pages that handle the wheel, canvases and foreign frames count as changed.
  let watched = null;
  const watch = ([x, y], dragged = false) => {
    watched?.end();
    const roots = new Set([window]), start = deepest(x, y), ended = new AbortController(), { signal } = ended;
    for (let at = start; at; at = parentNode(at) || at.host || at.defaultView?.frameElement) {
      if (at.nodeType === Node.DOCUMENT_FRAGMENT_NODE || at.nodeType === Node.DOCUMENT_NODE) roots.add(at);
    }
    const isKnown = isOpaque(start) || dragged && start?.localName === "canvas", seen = { changed: isKnown };
    const note = () => { seen.changed = true; };
    const wheeled = (event) => setTimeout(() => { seen.changed ||= event.defaultPrevented; });
    // a field that was typed in tells of its caret later
    const selected = ({ target }) => { seen.changed ||= Boolean(`${(target.ownerDocument || target).getSelection()}`); };
    const heard = [["scroll", note], ["wheel", wheeled], ...(dragged ? [["input", note], ["drop", note], ["selectionchange", selected]] : [])];
    for (const root of roots) for (const [type, hear] of heard) root.addEventListener(type, hear, { capture: true, passive: true, signal });
    const nowOf = (target, name) => target.getAttribute(name) || "";
    const above = new Set(), entered = new Set(), before = new Map();
    for (let at = start; at; at = parentNode(at) || at.host) above.add(at);
    // A class or a style that is back after a drag, and the class of what the mouse only comes over, are no effect.
    const keep = ({ type, target, attributeName, oldValue }) => {
      if (!dragged || type !== "attributes" || !/^(class|style)$/.test(attributeName)) return seen.isBegun && note();
      const olds = before.get(target) || before.set(target, {}).get(target);
      olds[attributeName] ||= [oldValue || ""];
    };
    const observer = new MutationObserver((records) => { // content that moves by style changes
      seen.latest = performance.now();
      records.forEach(keep);
    });
    observer.observe(document, { attributes: true, attributeOldValue: true, childList: true, subtree: true });
    const enter = (event) => event.composedPath().forEach((one) => entered.add(one));
    if (dragged) window.addEventListener("mouseover", enter, { capture: true, signal });
    Object.assign(seen, { isBegun: !dragged, latest: performance.now() });
    // What hovering has changed at the start of a drag is there before it.
    seen.begin = () => {
      for (const [target, olds] of before) for (const name of Object.keys(olds)) olds[name].push(nowOf(target, name));
      [seen.isBegun, seen.changed] = [true, isKnown];
    };
    seen.isLeft = () => Array.from(before).some(([target, olds]) => Object.keys(olds).some((name) => target.isConnected &&
      !olds[name].includes(nowOf(target, name)) && (name === "style" || above.has(target) || !entered.has(target))));
    seen.end = () => {
      observer.disconnect();
      ended.abort();
    };
    watched = seen;
    return {};
  };

  // Wait until what the mouse set off at the start of a drag is over; what changes from then on is the drag's effect.
  const settled = async () => {
    const from = performance.now();
    await until(() => performance.now() - Math.max(from, watched.latest) > QUIET_MS, MOVE_MS);
    watched.begin();
    return {};
  };

  const hasChanged = async () => {
    const seen = watched;
    await until(() => !seen || seen.changed, MOVE_MS);
    seen?.end();
    return { changed: !seen || seen.changed || seen.isLeft() };
  };

  // The drop-down list of an element, or of an option that may cover it; what it shows and holds while it is open, pointed at an option or not.
  const OPENERS = "[role=combobox],[aria-haspopup=listbox]", POINTING = / (?:aria-activedescendant|[\w-]*focus[\w-]*)="[^"]*"/g;
  const openerOf = (at) => at?.closest(OPENERS) || at?.closest("[role=option]") && treeOf(at).querySelector(`:is(${OPENERS})[aria-expanded=true]`);
  const heldOpen = (list) => list.ariaExpanded === "true" && [list.innerText, list.outerHTML.replace(POINTING, ""),
    ...inside(list.parentElement || list, "input,select").map(({ value }) => value)].join();

  // How far the page and the largest containers in sight can be scrolled, in their heights; how many controls are outside.
  const CONTROLS = "a[href],button,input:not([type=hidden]),select,textarea,[role=button],[role=link]";
  // Only of the document and the address of the last `here`: what an observation shows.
  let looked = "";
  const here = () => (looked = location.href);
  const extent = () => atOnce(() => {
    if (location.href !== looked) return {};
    const page = document.scrollingElement || document.documentElement, containers = [];
    const share = (length, height) => Math.round((10 * Math.max(length, 0)) / (height || 1)) / 10;
    const tell = (element, name, height) => ({ name, above: share(element.scrollTop, height),
      below: share(element.scrollHeight - height - element.scrollTop, height) });
    for (const element of allOf(document)) {
      const height = element.clientHeight; // no text within a line has one, and reading it is cheaper than a style
      if (!height || element.scrollHeight <= height + 1 || element === page || isOpaque(element) || element.localName === "textarea" ||
        !canScroll(element, "down") && !canScroll(element, "up")) continue;
      const box = boxOf(element);
      if (box) containers.push([box.width * box.height, element]);
    }
    containers.sort(([one], [other]) => other - one);
    const named = (element) => oneLine(nameOf(element)) || roleOf(element);
    // each side is a call, and most are below
    const isOutside = (box) => (box.top >= innerHeight || box.bottom <= 0 || box.right <= 0 || box.left >= innerWidth) && box.height > 0;
    const outside = Array.from(document.querySelectorAll(CONTROLS)).filter((one) => isOutside(one.getBoundingClientRect()));
    return { outside: outside.length, scrolls: [tell(page, "", innerHeight),
      ...containers.slice(0, MOST_CONTAINERS).map(([, one]) => tell(one, named(one), one.clientHeight))] };
  });

  return Object.freeze({ extent, hasChanged, heldOpen, here, openerOf, settled, watch, wheelAt });
})();
