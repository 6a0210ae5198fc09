// Puts figures beside the facts that the page holds for them.
export function mount(makers) {
  for (const script of document.querySelectorAll('script[type="application/json"][data-figure]')) {
    const make = makers[script.dataset.figure];
    if (!make) continue;
    const figure = make(JSON.parse(script.textContent));
    figure.dataset.source = script.dataset.source;
    // The picture stands in a paragraph of its own, which holds no section.
    (script.closest('p') ?? script).after(figure);
  }
}
