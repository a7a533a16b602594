// Waits until a document is stable and rendered, and what a page without controls waits for; called from Python.
webgym.waits = (() => {
  const { atOnce, matches, parentOf, rootOf } = webgym.names;
  const { interest, NATIVE } = webgym.kinds;
  const QUIET_MS = 100, IMPATIENT_MS = 300, ANIMATION_MS = 1000, STILL_FRAMES = 3, LATE_MS = 50;

  // A page that is not rendered gets no animation frames: fall back to a timeout.
  const frame = () => new Promise((done) => {
    requestAnimationFrame(done);
    setTimeout(done, 100);
  });

  // Wait until something holds, frame by frame and for at most `limit` milliseconds, or so many `frames` if they take longer.
  // Returns whether it does.
  const until = async (holds, limit, frames = 0) => {
    const end = performance.now() + limit;
    for (let left = frames; !holds() && (left > 0 || performance.now() < end); left--) await frame();
    return holds();
  };

  // Select all of an editor, which hears of it a moment later: keys before that would go to its old selection.
  const selectAll = (field) => new Promise((done) => {
    field.ownerDocument.addEventListener("selectionchange", done, { once: true });
    setTimeout(done, QUIET_MS);
    field.ownerDocument.defaultView.getSelection().selectAllChildren(field);
  });

  const loading = () => document.fonts.status === "loading" ||
    Array.prototype.some.call(document.images, (image) => !image.complete && image.loading !== "lazy");

  const moving = () => loading() || document.getAnimations().some((animation) =>
    animation.playState === "running" && animation.effect?.getComputedTiming().endTime !== Infinity);

  // Images referenced only by style sheets: their loading is not observable, so each is loaded again and awaited.
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

  // Wait for at most `limit` milliseconds. For small pages, because of the pictures of their style sheets.
  const settle = async (limit) => {
    let still = STILL_FRAMES;
    const observer = new MutationObserver(() => { still = 0; }); // jQuery animates by styles: seen halfway, a click misses
    observer.observe(document, { subtree: true, attributeFilter: ["style"] });
    await frame();
    await frame();
    const waited = moving() || still < STILL_FRAMES;
    await until(() => !moving() && still++ >= STILL_FRAMES, limit);
    observer.disconnect();
    const loads = stylePictures();
    if (loads.length) await Promise.race([Promise.all(loads), new Promise((done) => setTimeout(done, limit))]);
    if (loads.length || waited) {
      await frame();
      await frame();
    }
  };

  // The same for pages of the open web, which may load and change at any time.
  // After a timeout the next waits are shorter, unless it was `isExtra`: the page ticks, streams or never finishes loading.
  let patience = Infinity, due = 0;
  document.addEventListener("webgym-timer", ({ detail }) => { due = Math.max(due, performance.now() + detail); });
  const waitUntilIdle = async (limit, isExtra = false) => {
    const end = performance.now() + Math.min(limit, patience);
    let changed = performance.now();
    const begun = performance.now();
    const observer = new MutationObserver((changes) => {
      // Scripts animate by styles; what has not come to rest after a while is decoration.
      const isLong = performance.now() - begun > ANIMATION_MS;
      if (!isLong || changes.some(({ type }) => type !== "attributes")) changed = performance.now();
    });
    observer.observe(document, { childList: true, subtree: true, characterData: true, attributeFilter: ["style"] });
    await frame();
    await frame();
    const restless = () => document.readyState !== "complete" || moving() || performance.now() - changed < QUIET_MS;
    const isDue = () => performance.now() < Math.min(due + LATE_MS, begun + limit); // a timer may start another one
    while (isDue() || performance.now() < end && restless()) await frame();
    observer.disconnect();
    if (!isExtra) patience = restless() ? IMPATIENT_MS : Infinity;
  };

  const SPINNERS = "[aria-busy=true],progress:not([value]),[role=progressbar]:not([aria-valuenow]),[class*=spinner i]," +
    "[class*=splash i],[id*=splash i],[class*=loading i],[id*=loading i],[class*=loader i],[id*=loader i]";

  const isEmpty = () => (document.body?.childElementCount ?? 0) < 20 && !document.body?.innerText?.trim() &&
    !document.querySelector("img,svg,canvas,video,iframe,frame,object,embed,input,button") &&
    !Array.prototype.some.call(document.querySelectorAll("body *"), rootOf);

  const MORE = "iframe,frame,object,embed,canvas,[tabindex],[onclick]";
  const isInteractive = (element) => element.localName.includes("-") && matches(element, ":defined") || interest(element) > 1 ||
    matches(element, "iframe,frame");

  // What a page that shows nothing interactive waits for: "busy" if it is empty, spins or is marked as busy; for a start
  // page "bare" if it has scripts and no control at all, or custom elements that are not defined yet; else "".
  const splashOf = (isStart) => atOnce(() => {
    const shown = (element) => {
      const box = element?.getBoundingClientRect?.();
      return box && box.width > 0 && box.bottom > 0 && box.top < innerHeight && element.checkVisibility({ opacityProperty: true });
    };
    const turns = (animation) => animation.playState === "running" &&
      animation.effect?.getComputedTiming().endTime === Infinity && shown(animation.effect.target);
    const hasScripts = document.scripts.length > 0;
    if (hasScripts && isEmpty()) return "busy";
    const isBusy = document.getAnimations().some(turns) || Array.from(document.querySelectorAll(SPINNERS)).some(shown);
    const isBare = isStart && hasScripts && (!document.querySelector(`${NATIVE},${MORE}`) ||
      Array.from(document.querySelectorAll("body :not(:defined)")).some(shown));
    if (!isBusy && !isBare) return "";
    for (let y = 0.05; y < 1; y += 0.1) {
      for (let x = 0.05; x < 1; x += 0.1) {
        for (let at = document.elementFromPoint(innerWidth * x, innerHeight * y); at; at = parentOf(at)) {
          if (!matches(at, "form") && isInteractive(at)) return ""; // a form's fields' names shadow its methods
        }
      }
    }
    return isBusy ? "busy" : "bare";
  });

  return Object.freeze({ selectAll, settle, splashOf, until, waitUntilIdle });
})();
