// What every page does: colours, contents on a narrow screen, solved exercises, copying, search.
import MiniSearch from 'minisearch';
import { sayContinues } from './figures/parts.mjs';
import { excerpt, find, marked, options } from './search.mjs';

const byId = (id) => document.getElementById(id);
const prefix = document.body.dataset.prefix;

// --- Colours -----------------------------------------------------------------------------------------------------

/// A browser may keep nothing for files: then a choice holds for this page.
function kept(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(`workbook-${name}`, value);
    return localStorage.getItem(`workbook-${name}`);
  } catch {
    return null;
  }
}

const theme = byId('book-theme');
theme.value = document.documentElement.dataset.theme;
theme.addEventListener('change', () => {
  document.documentElement.dataset.theme = theme.value;
  kept('theme', theme.value);
});

// --- Contents and outline: columns of a wide page, panels of a narrow one ---------------------------------------------

const contents = byId('book-contents'), outline = byId('book-outline');
const reveal = (panel, link) => link && (panel.scrollTop = Math.max(0, link.offsetTop - panel.clientHeight / 2));
const toCurrent = (panel) => reveal(panel, panel.querySelector('[aria-current]'));
for (const panel of [contents, outline].filter(Boolean)) {
  panel.addEventListener('toggle', () => toCurrent(panel));
  panel.addEventListener('click', (event) => event.target.closest('a') && panel.togglePopover(false));
}
toCurrent(contents);

/// The section that is being read is the last one that begins above the middle of the upper half.
const links = [...document.querySelectorAll('#book-outline a')];
const sections = links.map((link) => byId(decodeURIComponent(link.hash.slice(1))));
function follow() {
  const at = sections.findLastIndex((section) => section.getBoundingClientRect().top < innerHeight / 4);
  links.forEach((link, i) => (i === at ? link.setAttribute('aria-current', 'location') : link.removeAttribute('aria-current')));
  if (outline) toCurrent(outline);
}
addEventListener('scroll', follow, { passive: true });
follow();

// --- Solved exercises: ticked here, or read from what ./workbook status --json printed --------------------------------

const ticks = [...document.querySelectorAll('.tick input')];
let solved = new Set(JSON.parse(kept('solved') ?? '[]'));
function showSolved() {
  for (const tick of ticks) tick.checked = solved.has(tick.value);
  for (const link of links) link.classList.toggle('solved', solved.has(/^[\d.]*/.exec(link.textContent)[0]));
  byId('book-solved').textContent = solved.size > 0 ? `${solved.size} solved` : '';
}
function keepSolved(now) {
  solved = now;
  kept('solved', JSON.stringify([...solved]));
  showSolved();
}
for (const tick of ticks) {
  tick.parentElement.hidden = false;
  tick.addEventListener('change', () => keepSolved(new Set([...solved].filter((id) => id !== tick.value).concat(tick.checked ? tick.value : []))));
}
byId('book-status').addEventListener('change', async ({ target }) => {
  try {
    const exercises = JSON.parse(await target.files[0].text()).chapters.flatMap((chapter) => chapter.exercises);
    keepSolved(new Set(exercises.filter(({ state }) => state === 'passing').map(({ id }) => id)));
  } catch {
    byId('book-solved').textContent = 'This is no output of ./workbook status --json.';
  }
});
showSolved();

// --- Copying -----------------------------------------------------------------------------------------------------

for (const block of document.querySelectorAll('main pre:not(.drawing), .command')) {
  const button = Object.assign(document.createElement('button'), { type: 'button', className: 'copy', textContent: 'Copy' });
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(block.querySelector('code').textContent);
    button.textContent = 'Copied';
    setTimeout(() => (button.textContent = 'Copy'), 2000);
  });
  let place = block;
  if (block.matches('pre')) {
    place = Object.assign(document.createElement('div'), { className: 'code' });
    block.replaceWith(place);
    place.append(block);
  }
  place.append(button);
}

document.querySelectorAll('.scroll, .drawn, .formula, main pre').forEach(sayContinues);

// --- Search: an index is a script, so that it can be read from a folder too -------------------------------------------

const box = byId('book-search'), words = byId('book-words'), results = byId('book-results'), found = byId('book-found');
const most = 20, loaded = {};

const load = (name) =>
  (loaded[name] ??= new Promise((resolve, reject) => {
    const onload = () => resolve(MiniSearch.loadJSON(window.workbookSearch[name], options[name]));
    document.head.append(Object.assign(document.createElement('script'), { src: `${prefix}assets/search-${name}.js`, onload, onerror: reject }));
  }));

/// Found words are marked.
function withMarks(tag, text, terms) {
  const element = document.createElement(tag);
  element.append(...marked(text, terms).map((part, i) => (i % 2 === 0 ? part : Object.assign(document.createElement('mark'), { textContent: part }))));
  return element;
}

function show(hits, searching) {
  found.textContent = searching ?? (hits.length === 0 ? 'Nothing found.' : hits.length > most ? `${hits.length} found, the first ${most} of them:` : `${hits.length} found`);
  results.replaceChildren(
    ...hits.slice(0, most).map(({ page, title, url, text, terms }) => {
      const item = document.createElement('li'), link = withMarks('a', title === page ? page : `${page}: ${title}`, terms);
      link.href = prefix + url;
      link.addEventListener('click', () => document.activeElement.blur());
      item.append(link, withMarks('p', excerpt(text ?? '', terms, 180), terms));
      return item;
    }),
  );
}

/// Headings at once; the text as soon as its index is here.
async function search() {
  const query = words.value, still = () => words.value === query, headings = load('headings');
  if (query.trim() === '') return show([], '');
  found.textContent = 'Loading…';
  if (await headings && still()) show(find(query, await headings), 'Searching the text…');
  const text = await load('text');
  if (still()) show(find(query, await headings, text));
}
words.addEventListener('focus', search);
words.addEventListener('input', search);
box.addEventListener('keydown', (event) => {
  const all = [words, ...results.querySelectorAll('a')], step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  else if (event.key === 'Enter' && document.activeElement === words) all[1]?.click();
  else if (event.key === 'Escape') document.activeElement.blur();
  else return;
  event.preventDefault();
});
document.addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.target.closest('input, select, textarea')) return;
  event.preventDefault();
  words.select();
});
