// What every page does: colours, contents on a narrow screen, search, answers shown in print.
import MiniSearch from 'minisearch';
import { searchFields } from './search-fields.mjs';

const byId = (id) => document.getElementById(id);
const prefix = document.body.dataset.prefix;

// --- Colours -----------------------------------------------------------------------------------------------------

const theme = byId('book-theme');
theme.value = document.documentElement.dataset.theme;
theme.addEventListener('change', () => {
  document.documentElement.dataset.theme = theme.value;
  try {
    localStorage.setItem('workbook-theme', theme.value);
  } catch {} // a browser may keep nothing for files: then the choice holds for this page
});

// --- Contents ----------------------------------------------------------------------------------------------------

const menu = byId('book-menu');
menu.addEventListener('click', () => {
  const open = document.body.classList.toggle('contents-open');
  menu.setAttribute('aria-expanded', String(open));
});
const current = document.querySelector('#book-contents [aria-current]');
const contents = byId('book-contents');
if (current && current.offsetTop > contents.clientHeight) contents.scrollTop = current.offsetTop - contents.clientHeight / 2;

// --- Search: the index is a script, so that it can be read from a folder too -----------------------------------------

const dialog = byId('book-search'), words = byId('book-words'), results = byId('book-results'), found = byId('book-found');
const most = 20;
let index;

function loadIndex() {
  if (index) return index;
  index = new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = `${prefix}assets/search.js`;
    script.onload = () => resolve(MiniSearch.loadJSON(window.workbookSearch, searchFields));
    script.onerror = reject;
    document.head.append(script);
  });
  return index;
}

/// The words round the first match.
function excerpt(hit) {
  const lower = hit.text.toLowerCase();
  const at = Math.max(0, ...hit.terms.map((term) => lower.indexOf(term)).filter((place) => place >= 0).slice(0, 1));
  const from = Math.max(0, at - 60);
  return `${from > 0 ? '…' : ''}${hit.text.slice(from, from + 180)}…`;
}

async function search() {
  const loaded = await loadIndex();
  const all = words.value.trim() === '' ? [] : loaded.search(words.value);
  const hits = [...all.filter((hit) => hit.lesson), ...all.filter((hit) => !hit.lesson)].slice(0, most); // lessons first
  found.textContent = words.value.trim() === '' ? '' : all.length === 0 ? 'Nothing found.'
    : all.length > most ? `${all.length} found, the first ${most} of them:` : `${all.length} found`;
  results.replaceChildren(
    ...hits.map((hit) => {
      const item = document.createElement('li'), link = document.createElement('a'), text = document.createElement('p');
      link.href = prefix + hit.url;
      link.textContent = hit.title === hit.page ? hit.page : `${hit.page}: ${hit.title}`;
      link.addEventListener('click', () => dialog.close());
      text.textContent = excerpt(hit);
      item.append(link, text);
      return item;
    }),
  );
}

function openSearch() {
  dialog.showModal();
  words.select();
  loadIndex();
}
byId('book-find').addEventListener('click', openSearch);
words.addEventListener('input', search);
words.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter') return;
  event.preventDefault();
  results.querySelector('a')?.click();
});
document.addEventListener('keydown', (event) => {
  const typing = event.target.closest('input, select, textarea');
  if (event.key === '/' && !typing && !dialog.open) {
    event.preventDefault();
    openSearch();
  }
});

// --- Print: answers are part of the text on paper --------------------------------------------------------------------

let closed = [];
window.addEventListener('beforeprint', () => {
  closed = [...document.querySelectorAll('main details:not([open])')];
  for (const details of closed) details.open = true;
});
window.addEventListener('afterprint', () => {
  for (const details of closed) details.open = false;
});
