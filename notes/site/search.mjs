// What the search finds, for the page and for its test. Headings come first and have a small index of their own; the
// index of the text is loaded after it.
import MiniSearch from 'minisearch';
import { stemmer } from 'stemmer';

const silent = new Set('a an and are can do does for how i in is it mean meaning my of on or the this to what where which why with'.split(' '));
const word = /(\d+(?:\.\d+)+|[\p{L}\p{N}]+)/u;
const tokenize = (text) => text.split(word).filter((part, i) => i % 2 === 1);
/// "padded" and "padding" are one word, and so are "specialisation" and "specialization".
const stems = new Map(); // most words come again
const stem = (word) => stems.get(word) ?? stems.set(word, stemmer(word.toLowerCase().replace(/is(?=(e|ed|er|ing|ation)?$)/, 'iz'))).get(word);
const processTerm = (term) => (silent.has(term.toLowerCase()) ? null : stem(term));
/// A heading is found by the beginning of a word as well, while it is typed.
const withWord = (term) => processTerm(term) && [...new Set([term.toLowerCase(), stem(term)])];
const common = { tokenize, processTerm, searchOptions: { processTerm, prefix: true, combineWith: 'AND', boost: { title: 3, also: 3 } } };
export const options = {
  headings: { ...common, processTerm: withWord, fields: ['title', 'also', 'page'], storeFields: ['page', 'title', 'url', 'lesson', 'term', 'names'] },
  text: { ...common, fields: ['title', 'text'], storeFields: ['text'] },
};

const key = (text) => tokenize(text).map(processTerm).filter(Boolean).join(' ');

/// The documents of both indexes: {page, sections}, of which the glossary's name synonyms.
export function indexes(pages) {
  const made = { headings: new MiniSearch(options.headings), text: new MiniSearch(options.text) };
  let id = 0;
  for (const { page, sections } of pages) {
    for (const { title, anchor, text } of sections) {
      const [, number, bare] = /^(?:(Chapter \d+|\d+\.\d+):? )?(.*?)(?: \((?:about )?\d+ lines?.*\))?$/.exec(title);
      const term = page.path === 'notes/glossary.md', lesson = page.group === 'chapters';
      const called = term ? `${title}, ${/also called ([^.]*)\./i.exec(text)?.[1] ?? ''}`.split(/[,;] | or | and | \(|\)/) : [];
      const commands = page.path === 'notes/commands.md' && title === 'Commands' ? page.text.match(/(?<=^\| [^|]*`)[a-z]+/gm) : [];
      const also = [...called, ...commands];
      const document = { id, page: (page.chapter ?? page).title, title, also: also.join(' '), url: page.url + anchor, term, lesson };
      made.headings.add({ ...document, names: (page.group === 'notes' && !term ? commands : [number, bare, ...also]).filter(Boolean).map(key) });
      if (text) made.text.add({ id, title, text: text.replace(/\s+/g, ' ').trim() });
      ++id;
    }
  }
  return made;
}

/// What is named like the query, but for notes; then headings, then the text, in both lessons first:
/// {page, title, url, text, terms}. A synonym finds what its term finds, a name in code the text that introduces it.
export function find(words, headings, text) {
  const number = /^\s*(?:exercise|ex|test|task|problem)?\.?\s*(\d+\.\d+)(?:\s*(?:exercise|task|problem))?\s*$/i.exec(words)?.[1];
  const query = (number ?? words.replace(/^\s*(exercise|test)\s+(?=\d)/i, '')).trim(), named = key(query), name = query.includes('_');
  const hits = (more, combineWith = 'AND') => {
    const exact = headings.search(query, more).filter(({ names }) => names.includes(named));
    const names = [query, ...exact.filter(({ term }) => term).map(({ title }) => title)], found = new Map();
    const queries = names.map((name) => ({ combineWith, queries: [name] }));
    for (const [level, index] of [[2, headings], [0, text]]) {
      for (const { id, score, terms } of index?.search({ combineWith: 'OR', queries }, more) ?? []) {
        const document = { ...headings.getStoredFields(id), ...text?.getStoredFields(id) };
        const uses = name && document.text?.includes(query) ? 3 - id / 1e5 : 0; // in the order of the book
        const order = level + document.lesson + (document.names.includes(named) ? 4 : uses);
        if (!found.has(id)) found.set(id, { ...document, score, terms, order });
      }
    }
    return [...found.values()].sort((a, b) => b.order - a.order || b.score - a.score);
  };
  let found = hits({});
  if (found.length === 0) found = hits({ fuzzy: 0.2 });
  // At last what has some of the words, most words first.
  if (found.length === 0) found = hits({}, 'OR').sort((a, b) => b.terms.length - a.terms.length);
  return found;
}

/// The words of a text, alternating: not found, found, not found, …
export function marked(text, terms) {
  const parts = [''];
  text.split(word).forEach((part, i) => {
    if (i % 2 === 1 && [part.toLowerCase(), stem(part)].some((term) => terms.includes(term))) parts.push(part, '');
    else parts[parts.length - 1] += part;
  });
  return parts;
}

/// About so much of a text, in whole words, round the first that was found.
export function excerpt(text, terms, length) {
  const [before, first] = marked(text, terms);
  const from = first === undefined || before.length < length / 2 ? 0 : text.lastIndexOf(' ', before.length - length / 3) + 1;
  const to = from + length < text.length ? text.lastIndexOf(' ', from + length) : text.length;
  return `${from > 0 ? '…' : ''}${text.slice(from, to)}${to < text.length ? '…' : ''}`;
}
