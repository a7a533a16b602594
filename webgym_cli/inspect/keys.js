"use strict";
const PACE = 1000; // milliseconds that a film shows a step
const listPages = () => [top, ...Array.from(top.document.querySelectorAll("iframe"), (frame) => frame.contentWindow)];
const listSteps = ({ document }) => [...document.querySelectorAll("section.step")];
const isPlaying = ({ document }) => document.body.matches(".playing");
const findStep = (page) => {
  if (isPlaying(page)) return listSteps(page).findIndex((step) => step.matches(".now")); // the others are hidden
  const edge = page.document.querySelector("nav.film")?.offsetHeight ?? 0;
  return listSteps(page).findLastIndex((step) => step.getBoundingClientRect().top < edge + 20);
};
const markStep = ({ document }, number) => {
  document.querySelectorAll("section.step").forEach((step, at) => step.classList.toggle("now", at === number));
  document.querySelectorAll("nav.film a").forEach((link, at) => {
    link.toggleAttribute("aria-current", at === number);
    // not by scrollIntoView, which would scroll the page, too
    if (at === number) link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.clientWidth / 2;
  });
};
const showStep = (page, number) => {
  const step = listSteps(page)[number];
  if (!step) return false;
  markStep(page, number);
  step.scrollIntoView();
  return true;
};
const moveSteps = (page, by) => showStep(page, Math.max(findStep(page) + by, 0));
const stopFilm = () => {
  clearInterval(top.film);
  top.film = undefined;
  for (const page of listPages()) {
    const number = findStep(page);
    page.document.body.classList.remove("playing");
    page.document.querySelector(".play")?.setAttribute("aria-pressed", "false");
    showStep(page, number);
  }
};
const playFilm = () => {
  if (top.film) return stopFilm();
  for (const page of listPages()) {
    const number = Math.max(findStep(page), 0);
    page.document.body.classList.add("playing");
    page.document.querySelector(".play")?.setAttribute("aria-pressed", "true");
    showStep(page, number + 1 < listSteps(page).length ? number : 0);
  }
  top.film = setInterval(() => listPages().filter((page) => moveSteps(page, 1)).length || stopFilm(), PACE);
};
document.querySelector(".play")?.addEventListener("click", playFilm);
document.querySelectorAll("nav.film a").forEach((link, at) => link.addEventListener("click", () => showStep(window, at)));
document.addEventListener("scroll", () => isPlaying(window) || markStep(window, findStep(window)), { passive: true });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), select")) return;
  if (event.key === " " && event.target.matches("a, button, summary, input")) return; // which it activates
  const by = { j: 1, k: -1 }[event.key.toLowerCase()]; // Caps Lock may be on
  if (by) for (const page of listPages()) moveSteps(page, by);
  // a key that is held down must not label the next episode, too
  const control = event.repeat ? null : document.querySelector(`[data-key="${CSS.escape(event.key)}" i]`);
  if (!control) return;
  event.preventDefault();
  control.focus();
  if (!control.matches("input")) control.click();
});
