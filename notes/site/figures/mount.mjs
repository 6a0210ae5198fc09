// Puts figures in the place of their pictures, beside the facts that the page holds for them. On paper, and without
// scripts, the picture stays.
import { figures } from './kinds.mjs';

for (const script of document.querySelectorAll('script[type="application/json"][data-figure]')) {
  const facts = JSON.parse(script.textContent), figure = figures[facts.kind](facts);
  figure.prepend(Object.assign(document.createElement('p'), { className: 'title', textContent: facts.title }));
  figure.dataset.source = script.dataset.source;
  const picture = script.previousElementSibling;
  picture.classList.add('replaced');
  figure.querySelector('.body').setAttribute('aria-label', picture.querySelector('img').alt);
  // A caption below that says the same is for paper.
  const caption = script.closest('p')?.nextElementSibling;
  if (caption?.textContent === facts.title) caption.classList.add('replaced');
  // The picture stands in a paragraph of its own, which holds no section.
  (script.closest('p') ?? script).after(figure);
}
