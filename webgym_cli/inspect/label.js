"use strict";
const KEYS = { y: "yes", n: "no", u: "unsure" };
document.addEventListener("keydown", (event) => {
  // a key that is held down must not label the next episode, too
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const target = event.key === "b" ? "#before" : `button[value="${KEYS[event.key]}"]`;
  document.querySelector(target)?.click();
});
