// Tables sort by a click on a head; the ledger of claims is filtered. Without this script both are there, as they are.
"use strict";

const collator = new Intl.Collator("en-GB", { numeric: true });
const NUMBER = /^[-+−]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?(?=$|[\s%])/i;
const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

// What sorts together: the rows of a table, or its groups of rows where it has several.
function unitsOf(table) {
  return table.tBodies.length > 1 ? [...table.tBodies] : [...table.tBodies[0].rows];
}

function textOf(unit, column) {
  const cell = (unit.rows ? unit.rows[0] : unit).cells[column];
  return (cell.dataset.sort ?? cell.textContent).trim();
}

function numberOf(text) {
  const found = NUMBER.exec(text);
  return found ? Number(found[0].replaceAll(",", "").replace("−", "-")) : null;
}

function compareBy(texts, sign) {
  const there = [...texts.values()].filter((text) => text && text !== "–");
  const numeric = there.length > 0 && there.every((text) => numberOf(text) !== null);
  return (one, other) => {
    const [a, b] = [texts.get(one), texts.get(other)];
    const [lacksA, lacksB] = [!a || a === "–", !b || b === "–"];
    if (lacksA || lacksB) return lacksA - lacksB; // what is not there comes last, either way
    return sign * (numeric ? numberOf(a) - numberOf(b) : collator.compare(a, b));
  };
}

function sortBy(table, units, column, direction) {
  const order = [...units];
  if (direction !== "none") {
    const texts = new Map(units.map((unit) => [unit, textOf(unit, column)]));
    order.sort(compareBy(texts, direction === "ascending" ? 1 : -1));
  }
  order[0]?.parentNode.append(...order);
}

function makeSortable(table) {
  if (!table.tBodies.length) return;
  const units = unitsOf(table);
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const direction = NEXT[head.getAttribute("aria-sort")];
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", direction);
      sortBy(table, units, column, direction);
    });
  });
}

function makeFilter(form) {
  const claims = [...document.querySelectorAll("table.claims tbody")];
  const words = new Map(claims.map((claim) => [claim, claim.textContent.toLowerCase()]));
  const choices = ["verdict", "paper", "kind"];
  const filter = () => {
    const wanted = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const claim of claims) {
      const chosen = choices.every((name) => [" ", claim.dataset[name]].includes(form.elements[name].value || " "));
      claim.hidden = !(chosen && wanted.every((word) => words.get(claim).includes(word)));
      count += !claim.hidden;
    }
    form.querySelector("output").value = `${count} of ${claims.length} claims`;
  };
  const asked = new URLSearchParams(location.search); // claims.html?paper=…&verdict=…
  for (const name of [...choices, "words"]) if (asked.has(name)) form.elements[name].value = asked.get(name);
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  filter();
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
document.querySelectorAll("#filter").forEach(makeFilter);
