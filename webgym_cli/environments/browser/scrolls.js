// What the wheel moves, and whether it, a drag or keys had an effect.
webgym.scrolls = (() => {
  const { atOnce, parentNode, parentOf } = webgym.names;
  const { allOf, deepest, isOpaque } = webgym.frames;
  const { boxOf, pointOf } = webgym.geometry;
  const { until } = webgym.waits;
  const MOVE_MS = 200;

  const canScroll = (element, down) => element.scrollHeight > element.clientHeight + 1 &&
    (down ? element.scrollTop + element.clientHeight < element.scrollHeight - 1 : element.scrollTop > 0) &&
    (element === element.ownerDocument.scrollingElement || /auto|scroll/.test(getComputedStyle(element).overflowY) ||
      element.localName === "textarea");

  // What the wheel moves at a point.
  const scrollerAt = ([x, y], down) => {
    let at = deepest(x, y);
    while (at && !isOpaque(at) && !canScroll(at, down)) at = parentOf(at) || at.ownerDocument.defaultView.frameElement;
    return at;
  };

  // The point at which to turn the wheel: the middle, unless only an element elsewhere can scroll in this direction, in
  // whatever shadow root or frame.
  const scrollable = (down) => atOnce(() => {
    const middle = [innerWidth / 2, innerHeight / 2];
    if (scrollerAt(middle, down)) return middle;
    let best = null, most = 0;
    for (const element of allOf(document)) {
      if (!isOpaque(element) && !canScroll(element, down)) continue;
      const box = boxOf(element), point = box && pointOf(element, box);
      // what a frame of another origin can do is not known
      const seen = point ? box.width * box.height / (isOpaque(element) ? 4 : 1) : 0;
      if (seen > most) [best, most] = [point, seen];
    }
    return best || middle;
  });

  // The point at which to turn the wheel (default: where a scroll without a place turns it), the size of what it moves
  // there, and whether it moves something else than a scroll without a place does.
  const wheelAt = (place, down) => {
    const point = place || scrollable(down), there = scrollerAt(point, down);
    const { clientWidth, clientHeight } = there && !isOpaque(there) ? there : document.documentElement;
    return { point, size: [clientWidth, clientHeight], apart: Boolean(place && there) && there !== scrollerAt(scrollable(down), down) };
  };

  // Whether the wheel or a drag had an effect. A page that handles wheel events itself, a canvas and a frame of another
  // origin count as changed.
  let watched = null;
  const watch = ([x, y], dragged = false) => {
    watched?.end();
    const roots = new Set([window]), start = deepest(x, y);
    for (let at = start; at; at = parentNode(at) || at.host || at.defaultView?.frameElement) {
      if (at.nodeType === Node.DOCUMENT_FRAGMENT_NODE || at.nodeType === Node.DOCUMENT_NODE) roots.add(at);
    }
    const seen = { changed: isOpaque(start) || dragged && start?.localName === "canvas" };
    const note = () => { seen.changed = true; };
    const wheeled = (event) => setTimeout(() => { seen.changed ||= event.defaultPrevented; });
    // a field that was typed in tells of its caret later
    const selected = ({ target }) => { seen.changed ||= Boolean(`${(target.ownerDocument || target).getSelection()}`); };
    const heard = [["scroll", note], ["wheel", wheeled], ...(dragged ? [["input", note], ["drop", note], ["selectionchange", selected]] : [])];
    for (const root of roots) for (const [type, hear] of heard) root.addEventListener(type, hear, { capture: true, passive: true });
    const observer = new MutationObserver(note); // content that moves by style changes
    observer.observe(document, { attributes: true, childList: true, subtree: true });
    seen.end = () => {
      observer.disconnect();
      for (const root of roots) for (const [type, hear] of heard) root.removeEventListener(type, hear, { capture: true });
    };
    watched = seen;
    return {};
  };

  const hasChanged = async () => {
    const seen = watched;
    await until(() => !seen || seen.changed, MOVE_MS);
    seen?.end();
    return { changed: !seen || seen.changed };
  };

  return Object.freeze({ hasChanged, watch, wheelAt });
})();
