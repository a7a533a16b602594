"use strict";
const moveSteps = ({ document }, by) => {
  const steps = [...document.querySelectorAll("section.step")];
  const current = steps.findLastIndex((step) => step.getBoundingClientRect().top < 20);
  steps[Math.max(current + by, 0)]?.scrollIntoView();
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), select")) return;
  const by = { j: 1, k: -1 }[event.key];
  if (by) for (const page of [top, ...[...top.document.querySelectorAll("iframe")].map((frame) => frame.contentWindow)]) moveSteps(page, by);
  // a key that is held down must not label the next episode, too
  const control = event.repeat ? null : document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!control) return;
  event.preventDefault();
  control.focus();
  if (!control.matches("input")) control.click();
});
