// The book's Markdown as HTML: links resolved, code coloured, wide things scrollable, and a figure to touch below each
// picture that has facts.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { posix } from 'node:path';
import MarkdownIt from 'markdown-it';
import anchor from 'markdown-it-anchor';
import { tex } from '@mdit/plugin-tex';
import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import cpp from 'highlight.js/lib/languages/cpp';
import ini from 'highlight.js/lib/languages/ini';
import json from 'highlight.js/lib/languages/json';
import python from 'highlight.js/lib/languages/python';
import { drawStacked } from './figures/diagram.mjs';
import { figures } from './figures/kinds.mjs';
import { once } from './kept.mjs';
import { between, formulaParts, plainFormula, slugOf } from './pages.mjs';

for (const [name, language] of Object.entries({ bash, cpp, ini, json, python })) hljs.registerLanguage(name, language);
const languages = { sh: 'bash', bash: 'bash', cpp: 'cpp', toml: 'ini', ini: 'ini', json: 'json', python: 'python' };

export const { escapeHtml } = new MarkdownIt().utils;

/// No line ends within an option of a command, --head-dim.
const unbroken = (html) => html.replace(/--(?:[\w-]+|<span[^>]*>[\w-]+<\/span>)+/g, '<span class="word">$&</span>');
/// In a narrow column, a name continues after one of its parts.
const withBreaks = (html) => html.replace(/(?<=\w[_.:,(]+)(?=[a-z])/gi, '<wbr>');

export function highlighted(text, language) {
  const known = languages[language];
  const html = known ? once(() => hljs.highlight(text, { language: known, ignoreIllegals: true }).value, known, text) : escapeHtml(text);
  return known === 'bash' ? unbroken(html) : html;
}

/// Coloured code as lines, whose continuations are indented. What is open at a line's end, a comment of several lines,
/// is closed there and opened again.
export function inLines(html, attributes = () => '') {
  let open = [];
  return html.split('\n').map((line, i) => {
    const before = open.join(''), [indent] = /^ */.exec(line);
    for (const tag of line.match(/<span[^>]*>|<\/span>/g) ?? []) tag === '</span>' ? open.pop() : open.push(tag);
    const style = indent && ` style="--indent:${indent.length}ch"`, lead = indent && `<span class="lead">${indent}</span>`;
    return `<span class="line"${attributes(i)}${style}>${before}${lead}${line.slice(indent.length)}${'</span>'.repeat(open.length)}\n</span>`;
  }).join('');
}

/// Short formulas are written as in the comments of the code: P_ij, Σ_j, m_{t+1}, 2^(S − m). In prose, their indices are
/// set low and their exponents high.
const index = /(?<![\p{L}\p{N}_./-])(Σ|[δ∂]?(?:\p{L}|d\p{Lu})|LSE|max|min)_(?:\{([^}]+)\}|([\p{Ll}\p{Lu}]{1,2}|\d|new|old|safe|max|before))(?![\p{Ll}\p{Lu}\p{Nd}_])/gu;
const exponent = /(?<![\p{L}\p{N}_])(2|10|e)\^(?:\(((?:[^()]|\([^()]*\))+)\)|([−-]?(?:\d+|\p{L}|∞))(?![\p{L}\p{N}_]))/gu;
export const withIndices = (html) =>
  html
    .replace(index, (all, base, braced, plain) => `${base}<sub>${braced ?? plain}</sub>`)
    .replace(exponent, (all, base, bracketed, plain) => `${base}<sup>${bracketed ?? plain}</sup>`);

/// The facts beside a picture, if there are any.
export function factsOf(root, page, image) {
  const file = join(root, posix.join(posix.dirname(page.path), image.replace(/\.svg$/, '.json')));
  if (!image.endsWith('.svg') || !existsSync(file)) return undefined;
  return JSON.parse(readFileSync(file, 'utf8'));
}

/// Below an exercise's heading: its task, how to test it, and its hints, each of which shows the next one.
function card(page, { id, points, source, line, hints }) {
  const words = (text) => text.split('`').map((part, i) => (i % 2 === 0 ? withIndices(escapeHtml(part)) : `<code>${escapeHtml(part)}</code>`)).join('');
  return `<p>${points} point${points === 1 ? '' : 's'} · <a href="${between(page.url, source.url)}#L${line}"><code>${source.title}</code>, line ${line}</a></p>
<p class="command"><code>./workbook test ${id}</code> <label class="tick" hidden><input type="checkbox" value="${id}"> solved</label></p>
${hints.map((hint, i) => `<details class="hint"><summary>Hint ${i + 1} of ${hints.length}</summary><p>${words(hint)}</p></details>\n`).join('')}</section>\n`;
}

const safeJson = (value) => JSON.stringify(value).replaceAll('<', '\\u003c');

/// env.sourcePath of a rendering says whose text it is.
export function makeMarkdown({ root, links }) {
  const md = new MarkdownIt({ html: true, linkify: true });
  // References are links: arXiv:1706.03762, and addresses as they are printed, docs.nvidia.com.
  md.linkify.set({ fuzzyEmail: false }).tlds(['com', 'io', 'org']).add('arxiv:', {
    validate: /^\d{4}\.\d{4,5}/,
    normalize: (match) => (match.url = `https://arxiv.org/abs/${match.text.slice(6)}`),
  });
  md.linkify.normalize = (match) => (match.url = match.schema === '' ? `https://${match.text}` : match.url);
  // $…$ and $$…$$, typeset here: pages need no script for them. MathML is beside it for screen readers.
  md.use(tex, {
    render(formula, displayMode) {
      const typeset = formulaParts(formula, displayMode).map(({ html }) => html).join('');
      return displayMode ? `<span class="formula" tabindex="0">${typeset}</span>` : typeset;
    },
  });
  md.use(anchor, { slugify: slugOf, tabIndex: false, permalink: anchor.permalink.headerLink({ safariReaderFix: true }) });
  const rules = md.renderer.rules;
  const pageOf = (env) => links.byPath.get(env.sourcePath);

  const exerciseOf = (env, heading) => pageOf(env).exercises?.find(({ anchor }) => anchor === heading.attrGet('id'));
  rules.heading_open = (tokens, i, options, env, self) =>
    (exerciseOf(env, tokens[i]) ? '<section class="exercise">\n' : '') + self.renderToken(tokens, i, options);
  rules.heading_close = (tokens, i, options, env, self) => {
    const exercise = exerciseOf(env, tokens[i - 2]);
    return self.renderToken(tokens, i, options) + (exercise ? card(pageOf(env), exercise) : '');
  };
  rules.fence = (tokens, i) => {
    const language = tokens[i].info.trim().split(/\s+/)[0], html = highlighted(tokens[i].content.replace(/\n$/, ''), language);
    // Code may wrap on a narrow screen; what is drawn with letters may not.
    return `<pre tabindex="0"${language in languages ? ' class="wraps"' : language === 'text' ? ' class="drawing"' : ''}><code>${language in languages ? inLines(html) : html}</code></pre>\n`;
  };
  // A line does not end at an equals sign: "N = 512" stays together.
  rules.text = (tokens, i) => withIndices(escapeHtml(tokens[i].content)).replace(/(?<=[\p{L}\d]) ([=≤≥≈]) (?=[\p{L}\d−])/gu, '\u00a0$1\u00a0');
  rules.code_block = rules.fence;
  rules.code_inline = (tokens, i, options, env) => {
    const text = unbroken(escapeHtml(tokens[i].content)), code = `<code>${env.inCell ? withBreaks(text) : text}</code>`;
    const inLink = tokens.slice(0, i).reduce((depth, t) => depth + (t.type === 'link_open') - (t.type === 'link_close'), 0);
    const target = inLink ? undefined : links.named(pageOf(env), tokens[i].content);
    return target ? `<a href="${target}">${code}</a>` : code;
  };
  rules.table_open = () => '<div class="scroll" tabindex="0"><table>\n';
  rules.table_close = () => '</table></div>\n';
  rules.td_open = (tokens, i, options, env, self) => ((env.inCell = true), self.renderToken(tokens, i, options));
  rules.td_close = (tokens, i, options, env, self) => ((env.inCell = false), self.renderToken(tokens, i, options));
  rules.th_open = (tokens, i, options, env, self) => {
    // A column of names has no head: an empty cell is none.
    if (tokens[i + 1].content !== '') return self.renderToken(tokens, i, options);
    tokens[i].tag = 'td';
    tokens[i + 2].tag = 'td';
    return self.renderToken(tokens, i, options);
  };
  rules.link_open = (tokens, i, options, env, self) => {
    const token = tokens[i];
    if (!token.attrGet('class')?.includes('header-anchor')) {
      const target = links.resolve(pageOf(env), token.attrGet('href'));
      const definition = links.definition(pageOf(env), token.attrGet('href'));
      if (target === null) token.attrs = [['class', 'left-out'], ['title', 'not part of these pages']];
      else token.attrSet('href', target);
      if (definition) token.attrs.push(['class', 'term'], ['data-definition', definition]);
    }
    return self.renderToken(tokens, i, options);
  };
  rules.image = (tokens, i, options, env) => {
    const token = tokens[i], source = token.attrGet('src'), facts = factsOf(root, pageOf(env), source);
    const target = links.resolve(pageOf(env), source), stacked = facts?.kind === 'diagram' && drawStacked(facts);
    const narrow = stacked && links.write(pageOf(env), source.replace('.svg', '.narrow.svg'), stacked.file(facts.title));
    const image = `${narrow ? `<source media="screen and (max-width: 52rem)" srcset="${narrow}">` : ''}<img src="${target}" alt="${escapeHtml(token.content)}">`;
    const framed = `<span class="drawn" tabindex="0"><picture>${image}</picture></span>`;
    if (!(facts?.kind in figures)) return framed;
    return `${framed}<script type="application/json" data-figure="${facts.kind}" data-source="${escapeHtml(source)}">${safeJson(facts)}</script>`;
  };
  return md;
}

/// Headings with their anchors, and the words between them, for the page's outline and for the search.
export function sectionsOf(tokens, page) {
  const sections = [{ level: 1, title: page.title, anchor: '', text: '' }];
  const plain = ({ type, content }) => (type === 'softbreak' ? ' ' : type.startsWith('math') ? plainFormula(content, type === 'math_block') : content);
  tokens.forEach((token, i) => {
    if (token.type === 'heading_open') {
      const title = tokens[i + 1].children
        .filter((child) => child.type === 'text' || child.type === 'code_inline')
        .map((child) => child.content)
        .join('');
      const level = Number(token.tag.slice(1));
      if (level > 1) sections.push({ level, title, anchor: `#${token.attrGet('id')}`, text: '' });
    } else if (token.type === 'inline' && tokens[i - 1].type !== 'heading_open') {
      sections.at(-1).text += `${token.children.map(plain).join('')} `;
    } else if (token.type === 'fence' || token.type === 'math_block') {
      sections.at(-1).text += `${plain(token)} `;
    }
  });
  return sections;
}
