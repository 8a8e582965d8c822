// How the search ranks pages: Sphinx's own numbers, and among pages that have the same words evidence before reference.
"use strict";

var Scorer = {
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
  score: ([page, , , , score]) => score + (
    /^(papers\/|docs\/(results|contest|glossary)$)/.test(page) ? 3
    : /^(companions\/|index$|claims$|docs\/(guide|library|papers)$)/.test(page) ? 2
    : /^(runs|compare|figures|config\/|data\/|CONTRIBUTING$)/.test(page) ? 0 : 1
  ),
};
