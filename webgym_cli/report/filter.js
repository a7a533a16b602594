"use strict";
{
  const filter = document.getElementById("filter");
  const cards = [...document.querySelectorAll("#episodes article")];
  const fields = filter ? [...filter.querySelectorAll("select")] : [];
  const apply = () => {
    const words = filter.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const card of cards) {
      const text = card.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word))
        && fields.every((field) => !field.value || card.dataset[field.name] === field.value);
      card.hidden = !fits;
      count += Number(fits);
    }
    document.getElementById("shown").textContent = `${count} of ${cards.length}`;
  };
  if (filter) {
    filter.hidden = false;
    filter.addEventListener("input", apply);
    apply();
  }
}
