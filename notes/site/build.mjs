// Builds the site: pages through markdown-it, scripts through esbuild, the indexes of the search through MiniSearch.
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { build as bundle } from 'esbuild';
import { keep, once } from './kept.mjs';
import { layout } from './layout.mjs';
import { escapeHtml, highlighted, inLines, makeMarkdown, sectionsOf } from './markdown.mjs';
import { Links, between, findPages } from './pages.mjs';
import { pageStyle } from './figures/paint.mjs';
import { indexes } from './search.mjs';

const mark = '.flashattention-workbook-site'; // in a folder that this has written and may replace

/// A source file, a line an anchor.
function sourceHtml(page) {
  const lines = inLines(highlighted(page.text.replace(/\n$/, ''), page.language), (i) => ` id="L${i + 1}"`);
  const linked = lines.replace(/\bTODO\(([\d.]+)\)/g, (task, id) => {
    const { lesson, anchor } = page.chapter.exercises.find((exercise) => exercise.id === id);
    return `<a href="${between(page.url, lesson.url)}#${anchor}">${task}</a>`;
  });
  return `<h1><code>${escapeHtml(page.path)}</code></h1>
<p>${page.group === 'solutions' ? 'The solution' : 'A file'} of
<a href="${between(page.url, page.chapter.url)}">${escapeHtml(page.chapter.title)}</a>.</p>
<pre tabindex="0" class="wraps source"><code>${linked}</code></pre>`;
}

/// The start page in parts, which are side by side on a wide screen; its table leads to the exercises too.
function startHtml(html, pages) {
  const exercises = (url) => pages.find((page) => page.url === url).exercises.map(({ id, anchor }) => `<a href="${url}#${anchor}">${id}</a>`);
  const listed = (links) => `<details><summary>${links.length} exercises</summary>${links.join(' ')}</details>`;
  const table = html.replace(/<td><a href="(chapters\/[^"]*)">\d.*<\/td>\s*<td>.*(?=<\/td>)/g, (cells, url) => cells + listed(exercises(url)));
  return table.split(/(?=<h2 )/).map((part) => `<section>${part}</section>`).join('\n');
}

async function writeScripts(tool, out) {
  const common = { bundle: true, minify: true, target: 'es2020', format: 'iife', logLevel: 'silent', legalComments: 'none' };
  for (const [entry, name] of [['page.mjs', 'page.js'], ['figures/mount.mjs', 'figures.js']])
    await bundle({ ...common, entryPoints: [join(tool, entry)], outfile: join(out, 'assets', name) });
  const katex = join(tool, 'node_modules/katex/dist');
  cpSync(join(katex, 'fonts'), join(out, 'assets/fonts'), { recursive: true, filter: (file) => !/\.(ttf|woff)$/.test(file) });
  const rules = [join(katex, 'katex.min.css'), join(tool, 'figures/figures.css'), join(tool, 'style.css')].map((file) =>
    readFileSync(file, 'utf8'),
  );
  writeFileSync(join(out, 'assets/style.css'), [...rules, pageStyle()].join('\n'));
}

/// {root, tool, out, withSolutions} -> how many pages, and which.
export async function build({ root, tool, out, withSolutions }) {
  if (existsSync(out) && !existsSync(join(out, mark)))
    throw Object.assign(new Error(`--out ${out}: the folder is there, and this has not written it`), { exitCode: 2 });
  const pages = findPages({ root, withSolutions });
  const links = new Links({ root, pages, withSolutions });
  const md = makeMarkdown({ root, links });
  const parsed = new Map(pages.filter((page) => !page.language).map((page) => [page, md.parse(page.text, { sourcePath: page.path })]));
  const sections = new Map([...parsed].map(([page, tokens]) => [page, sectionsOf(tokens, page)]));

  rmSync(out, { recursive: true, force: true });
  mkdirSync(join(out, 'assets'), { recursive: true });
  writeFileSync(join(out, mark), '');
  for (const page of pages) {
    const env = { sourcePath: page.path }, file = join(out, page.url);
    const text = page.language ? sourceHtml(page) : md.renderer.render(parsed.get(page), md.options, env), content = page.group === 'start' ? startHtml(text, pages) : text;
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, layout(page, pages, sections.get(page) ?? [], root, content));
  }
  if (links.problems.length > 0) throw Object.assign(new Error(links.problems.join('\n')), { exitCode: 1 });
  for (const file of links.files) cpSync(join(root, file), join(out, file));
  for (const [file, text] of links.written) writeFileSync(join(out, file), text);
  const found = pages.filter(({ group }) => group !== 'missing').map((page) => ({ page, sections: sections.get(page) ?? [{ title: page.title, anchor: '' }] }));
  const shown = found.map(({ page: { path, url, title, group, chapter, text }, sections }) => [path, url, title, group, chapter?.title, path === 'notes/commands.md' && text, sections]);
  const search = once(() => Object.entries(indexes(found)).map(([name, index]) => [name, JSON.stringify(JSON.stringify(index))]), JSON.stringify(shown));
  for (const [name, index] of search) writeFileSync(join(out, `assets/search-${name}.js`), `(window.workbookSearch ??= {}).${name} = ${index};\n`);
  keep();
  await writeScripts(tool, out);
  return { pages: pages.length, list: pages.map(({ url, path, group, title }) => ({ url, path, group, title })) };
}
