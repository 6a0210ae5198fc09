// Which pages the site has: lessons, notes, and the files that a chapter's reader edits. Reads the repository, writes
// nothing.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, extname, join } from 'node:path';
import { posix } from 'node:path';
import katex from 'katex';
import { parse } from 'smol-toml';
import { once } from './kept.mjs';

const sourceFile = /\.(cpp|hpp|cuh?)$/;

/// A heading's anchor, as GitHub makes it: links that work there work here.
export const slugOf = (text) =>
  text
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replace(/\s/g, '-');

const read = (root, path) => readFileSync(join(root, path), 'utf8');

/// The text of the first heading.
const titleOf = (text) => /^# (.+)$/m.exec(text)[1].replaceAll('`', '');

/// notes/x.md -> notes/x.html, chapters/NN/README.md -> chapters/NN/index.html, a source file -> itself with .html.
function urlOf(path) {
  const renamed = path.replace(/README\.md$/, 'index.md');
  return renamed.endsWith('.md') ? renamed.replace(/\.md$/, '.html') : `${renamed}.html`;
}

const markdownPage = (root, path, group) => {
  const text = read(root, path);
  return { path, url: urlOf(path), group, text, title: titleOf(text) };
};

/// The files of one folder as pages; `chapter` is the lesson that they belong to.
function sourcePages(root, folder, group, chapter) {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder))
    .filter((name) => sourceFile.test(name))
    .sort()
    .map((name) => {
      const path = `${folder}/${name}`;
      return { path, url: urlOf(path), group, title: name, text: read(root, path), language: 'cpp', chapter };
    });
}

/// The exercises of chapter.toml, each with its heading's anchor and where its task is.
function exercisesOf(root, lesson) {
  return parse(read(root, lesson.path.replace('README.md', 'chapter.toml'))).exercise.map((exercise) => {
    const task = `TODO(${exercise.id})`, source = lesson.sources.find(({ text }) => text.includes(task));
    const line = source.text.split('\n').findIndex((text) => text.includes(task)) + 1;
    const anchor = slugOf(lesson.text.split('\n').find((text) => text.startsWith(`### ${exercise.id} `)).slice(3));
    return { ...exercise, lesson, source, line, anchor };
  });
}

/// The start page tells how to get the book: from where the site is published, or where this clone is from.
export function withAddress(text, { WORKBOOK_REPOSITORY, GITHUB_SERVER_URL, GITHUB_REPOSITORY }, origin) {
  const published = GITHUB_REPOSITORY && `${GITHUB_SERVER_URL}/${GITHUB_REPOSITORY}`;
  const address = WORKBOOK_REPOSITORY ?? published ?? /^https:\S+/.exec(origin)?.[0].replace(/\/\/[^/]*@/, '//'); // no password
  return address ? text.replace(/ `REPOSITORY`\s[^.]*\./, '').replaceAll('REPOSITORY', address) : text;
}

/// A title or a repository that notes/reading.md links is a link wherever it is named as a source.
function linkTitles(pages) {
  const { text } = pages.find(({ path }) => path === 'notes/reading.md');
  for (const [, title, address] of text.matchAll(/\*?\[([^\]]+)\]\((https:[^)]+)\)/g)) {
    const words = title.trim().split(/\s+/).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('\\s+');
    const named = new RegExp(title.endsWith('repository') ? `(?<!\\[)${words}` : `(?<=\\*)${words}(?=\\*)`, 'g');
    for (const page of pages) page.text = page.text.replace(named, (name) => `[${name}](${address})`);
  }
}

/// The glossary leads to the chapters that it names.
function linkChapters(glossary, lessons) {
  const lesson = (number) => lessons.find(({ title }) => title.startsWith(`Chapter ${number}:`));
  glossary.text = glossary.text.replace(/(?<!\[)\bchapter\s(\d+)/gi, (words, number) => `[${words}](../${lesson(number).path})`);
}

/// The page of results begins with what matters: its tables are folded, and the profiler's are a page of their own.
function splitResults(results) {
  const folded = (text) => text.replace(/^### (.*)\n\n((?:\|.*\n)+)/gm, '<details class="tables"><summary>$1</summary>\n\n$2\n</details>\n');
  const [all, tables] = /<!-- BEGIN profile -->\n([^]*)<!-- END profile -->/.exec(results.text), title = 'Tables of the profiler';
  results.text = folded(results.text.replace(all, () => `[${title}](results_profiler.md)\n`));
  const text = `# ${title}\n\nOf the stages in [results](results.md#what-the-profiler-says).\n\n${folded(tables)}`;
  return { ...results, path: 'notes/results_profiler.md', url: 'notes/results_profiler.html', title, text };
}

/// All pages. In reading order: the start, chapters as in its table, notes; then sources.
export function findPages({ root, withSolutions }) {
  const readme = markdownPage(root, 'README.md', 'start'), row = ({ path }) => readme.text.lastIndexOf(path);
  const lessons = readdirSync(join(root, 'chapters'))
    .filter((name) => existsSync(join(root, 'chapters', name, 'README.md')))
    .map((name) => markdownPage(root, `chapters/${name}/README.md`, 'chapters'))
    .sort((a, b) => row(a) - row(b));
  const notes = readdirSync(join(root, 'notes'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => markdownPage(root, `notes/${name}`, 'notes'))
    .flatMap((page) => (page.path === 'notes/results.md' ? [splitResults(page), page] : page))
    .sort((a, b) => a.title.localeCompare(b.title, 'en'));
  const sources = lessons.flatMap((lesson) => {
    const folder = dirname(lesson.path);
    const answers = folder.replace('chapters/', 'solutions/');
    return [
      ...sourcePages(root, folder, 'sources', lesson),
      ...(withSolutions ? sourcePages(root, answers, 'solutions', lesson) : []),
    ];
  });
  const origin = spawnSync('git', ['-C', root, 'remote', 'get-url', 'origin'], { encoding: 'utf8' }).stdout;
  const start = { ...readme, title: 'Start', text: withAddress(readme.text, process.env, origin ?? '') };
  const toRead = [start, ...lessons, ...notes];
  toRead.forEach((page, i) => {
    page.previous = toRead[i - 1];
    page.next = toRead[i + 1];
  });
  linkTitles(toRead);
  linkChapters(notes.find(({ path }) => path === 'notes/glossary.md'), lessons);
  for (const lesson of lessons) {
    lesson.sources = sources.filter((source) => source.chapter === lesson);
    lesson.exercises = exercisesOf(root, lesson);
    const files = [lesson, ...lesson.sources];
    files.slice(1).forEach((file, i) => Object.assign(file, { previous: files[i], next: files[i + 2] ?? lesson.next }));
  }
  const missing = '# Page not found\n\nThis address has no page. Begin at the [start](README.md), or use the search.\n';
  return [...toRead, ...sources, { path: '404.md', url: '404.html', group: 'missing', text: missing, title: 'Page not found' }];
}

/// A formula as KaTeX typesets it, and in a line of text: LSE_i = log ∑_(j=0)^(N_k−1) exp(S_ij).
function typeset(formula, displayMode) {
  const text = (node) => {
    if (node.type === 'annotation' || node.classes?.includes('katex-html')) return '';
    const [base, ...others] = (node.children ?? []).map(text), group = (part) => (part.length > 2 || / /.test(part) ? `(${part})` : part);
    if (/^(msub|munder)/.test(node.type)) return `${base}_${others.map(group).join('^')}`;
    if (/^(msup|mover)$/.test(node.type)) return `${base}^${group(others[0])}`;
    if (node.type === 'mfrac') return `${group(base)}/${group(others[0])}`;
    if (node.type === 'msqrt') return `√(${[base, ...others].join('')})`;
    return node.children ? [base, ...others].join('') : node.toText();
  };
  const tree = katex.__renderToDomTree(formula, { displayMode, throwOnError: true, strict: 'error' });
  const plain = text(tree).replace(/\u2061(?=[^(])/g, ' ').replace(/[\u2061\u200b]/g, '').replace(/[=≈≤≥←→]/g, ' $& ').replace(/\s+/g, ' ').trim();
  return { html: tree.toMarkup(), plain };
}
/// Its parts; what is far apart in a formula of its own line, by \qquad, is one each.
export const formulaParts = (formula, displayMode) =>
  formula.split(displayMode ? /\\q?quad\b/ : /$/).map((part) => once(() => typeset(part, displayMode), part, String(displayMode)));
export const plainFormula = (formula, displayMode = false) => formulaParts(formula, displayMode).map(({ plain }) => plain).join(' ');

/// The way from one page's folder to another address of the site.
export const between = (from, to) => posix.relative(posix.dirname(from), to) || posix.basename(to);

/// Where links lead. `missing` is called with what a link leads to that is not there.
export class Links {
  constructor({ root, pages, withSolutions }) {
    this.root = root;
    this.withSolutions = withSolutions;
    this.byPath = new Map(pages.map((page) => [page.path, page]));
    this.files = new Set(); // to be copied as they are
    this.written = new Map(); // to be written: a file's text
    this.problems = [];
  }

  /// What the glossary says of the term that a link leads to; undefined for any other link, and within the glossary.
  definition(page, target) {
    const [file, anchor] = target.split('#');
    const glossary = this.byPath.get(posix.normalize(posix.join(posix.dirname(page.path), file)));
    if (glossary?.path !== 'notes/glossary.md' || glossary === page || !anchor) return undefined;
    const entry = glossary.text.split(/^### /m).find((text) => slugOf(text.slice(0, text.indexOf('\n'))) === anchor);
    if (!entry) this.problems.push(`${page.path}: the glossary has no term for ${target}`);
    // plain text: links as their words, formulas and code as they are written
    return entry?.slice(entry.indexOf('\n')).replace(/^## [^]*/m, '').replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .replace(/\$([^$]*)\$/g, (all, formula) => plainFormula(formula)).replaceAll('`', '').replace(/\s+/g, ' ').trim();
  }

  /// A link or an image of `page` as the site has it; null: it leads to what the site leaves out.
  resolve(page, target) {
    if (/^[a-z]+:/.test(target)) return target;
    const [file, anchor] = target.split('#');
    const hash = anchor === undefined ? '' : `#${anchor}`;
    if (file === '') return hash;
    const path = posix.normalize(posix.join(posix.dirname(page.path), decodeURIComponent(file)));
    const known = this.byPath.get(path) ?? this.byPath.get(`${path.replace(/\/$/, '')}/README.md`);
    if (known) return between(page.url, known.url) + hash;
    if (path.startsWith('solutions/') && !this.withSolutions) return null;
    if (path.startsWith('..') || !existsSync(join(this.root, path)) || extname(path) === '') {
      if (path !== 'LICENSE') this.problems.push(`${page.path}: the link leads nowhere: ${target}`);
      if (path !== 'LICENSE') return null;
    }
    this.files.add(path);
    return between(page.url, path) + hash;
  }

  /// A link to a file beside `page` that the site writes itself.
  write(page, target, text) {
    this.written.set(posix.join(posix.dirname(page.path), target), text);
    return target;
  }

  /// The page of a file that a lesson names in `code`: one of its own chapter, or any by its path.
  named(page, text) {
    if (!/^[\w./-]+\.(cpp|hpp|cuh?|toml|md)$/.test(text)) return undefined;
    const folder = posix.dirname((page.chapter ?? page).path);
    const found = this.byPath.get(text) ?? this.byPath.get(posix.join(folder, text));
    return found && found !== page ? between(page.url, found.url) : undefined;
  }
}
