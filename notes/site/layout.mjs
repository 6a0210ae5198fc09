// What is round a page's text: its head, the contents, the outline, the way to the next page.
import { escapeHtml, factsOf } from './markdown.mjs';
import { between } from './pages.mjs';
import { figures } from './figures/kinds.mjs';

const raw = (text) => ({ text });
const textOf = (value) => value?.text ?? (Array.isArray(value) ? value.map(textOf).join('') : value || value === 0 ? escapeHtml(String(value)) : '');
/// A template: what is put into it is escaped, unless it is a template too; nothing is put in for undefined and false.
const html = (parts, ...values) => raw(parts.raw.map((part, i) => part + textOf(values[i])).join(''));

const icon = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'%3E%3Cpath fill='%231f66b3' d='M0 0h2v2h2v2h2v2h2v2H0z'/%3E%3Cpath fill='%23f2b134' d='M4 4h2v2H4z'/%3E%3C/svg%3E";
/// A server shows the page that is missing at any address: its links begin at the book's folder.
const base = html`<script>document.head.append(Object.assign(document.createElement('base'), { href: location.pathname.replace(/\/(chapters\/.*|notes\/.*|[^\/]*)$/, '/') }));</script>`;

/// The page as it is written; `content` is its text in HTML.
export function layout(page, pages, sections, root, content) {
  const shownIn = page.chapter ?? page, prefix = between(page.url, 'index.html').replace(/index\.html$/, '');
  const link = (other) => html`<a href="${between(page.url, other.url)}"${other === page && html` aria-current="page"`}>${other.title}</a>`;
  const entry = (other) => html`<li>${link(other)}${other === shownIn && other.sources?.length > 0 && html`
  <details${other !== page && html` open`}><summary>Files</summary><ul>
  ${other.sources.map((source) => html`<li>${link(source)}${source.group === 'solutions' && ' (solution)'}</li>`)}</ul></details>`}</li>
`;
  const listed = (...groups) => pages.filter(({ group }) => groups.includes(group)).map(entry);
  const images = [...page.text.matchAll(/!\[[^\]]*\]\(([^)]*\.svg)\)/g)].map((match) => match[1]);
  const touched = !page.language && images.some((image) => factsOf(root, page, image)?.kind in figures);
  const description = page.chapter ? `${page.title} of ${page.chapter.title}.` : /^(.{0,160})(\s|$)/.exec(sections.find(({ text }) => text)?.text)?.[1];
  const isExercise = (anchor) => page.exercises?.some((exercise) => anchor === `#${exercise.anchor}`);
  const outline = sections.filter(({ level, anchor }) => level === 2 || (level === 3 && page.path === 'notes/glossary.md') || isExercise(anchor));
  const outlined = outline.length > 1;
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self' 'unsafe-inline' file:; style-src 'self' 'unsafe-inline' file:; font-src 'self' file:; img-src 'self' file: data: blob:">
<title>${page.title} · FlashAttention Workbook</title>
<meta name="description" content="${description}">
${page.group === 'missing' && base}
<link rel="icon" href="${raw(icon)}">
<link rel="stylesheet" href="${prefix}assets/style.css">
<script>
  try { document.documentElement.dataset.theme = localStorage.getItem('workbook-theme') || 'system'; } catch { document.documentElement.dataset.theme = 'system'; }
</script>
</head>
<body data-prefix="${prefix}">
<a class="skip" href="#book-text">To the text</a>
<header>
  <button type="button" id="book-menu" popovertarget="book-contents">Contents</button>
  <a class="book" href="${prefix}index.html"><span>FlashAttention </span>Workbook</a>
  ${outlined && html`<button type="button" id="book-here" popovertarget="book-outline">Outline</button>`}
  <div id="book-search" role="search">
    <input id="book-words" type="search" placeholder="Search" aria-label="Search" aria-keyshortcuts="/" autocomplete="off" spellcheck="false">
    <div class="found" tabindex="-1"><p id="book-found" role="status"></p><ol id="book-results"></ol></div>
  </div>
</header>
<div class="columns">
<nav id="book-contents" popover aria-label="Contents">
  <details id="book-settings"><summary>Settings</summary>
    <label>Colours
      <select id="book-theme"><option value="system">as the system</option><option value="light">light</option><option value="dark">dark</option></select>
    </label>
    <label>Solved exercises, as <code>status --json</code> prints them <input id="book-status" type="file" accept=".json"></label>
  </details>
  <p id="book-solved" role="status"></p>
  <h2>Chapters</h2>
  <ul>${listed('start', 'chapters')}</ul>
  <h2>Notes</h2>
  <ul>${listed('notes')}</ul>
</nav>
<main id="book-text" class="${page.group}" tabindex="-1">
${raw(content)}
<footer>
  ${page.previous && html`<a rel="prev" href="${between(page.url, page.previous.url)}">← ${page.previous.title}</a>`}
  ${page.next && html`<a rel="next" href="${between(page.url, page.next.url)}">${page.next.title} →</a>`}
</footer>
</main>
${outlined && html`<nav id="book-outline" popover aria-label="On this page">
  <h2>On this page</h2>
  <ul>${outline.map(({ level, anchor, title }) => html`<li class="level-${level}"><a href="${anchor}">${title.replace(/ \((about )?\d+ lines?.*\)$/, '')}</a></li>`)}</ul>
</nav>`}
</div>
<script src="${prefix}assets/page.js"></script>
${touched && html`<script src="${prefix}assets/figures.js"></script>`}
</body>
</html>
`.text;
}
