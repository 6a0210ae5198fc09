// The book as web pages. Node and npm are all it needs; after npm's first install it works offline.
//
//     node notes/site/site.mjs build [--out FOLDER] [--with-solutions]
//     node notes/site/site.mjs test  [--out FOLDER] [--trace PAGE]
//
// build writes the pages (build/site/pages); test builds them, then opens every one in Chromium (see test.mjs), and
// PAGE, which trace --html wrote, with what --json said beside it. What npm installs is pinned by package-lock.json and goes into build/site/tool, beside a copy of this folder.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const usage = 'usage: node notes/site/site.mjs build|test [--out FOLDER] [--with-solutions] [--trace PAGE]';
const oldestNode = 18;
const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../..');

class Trouble extends Error {
  constructor(exitCode, message) {
    super(message);
    this.exitCode = exitCode;
  }
}

function readCommandLine() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: { out: { type: 'string' }, trace: { type: 'string' }, 'with-solutions': { type: 'boolean', default: false } },
    });
    if (positionals.length !== 1 || !['build', 'test'].includes(positionals[0])) throw new Error(usage);
    if (values.out === '') throw new Error('--out: the name of a folder');
    return {
      job: positionals[0],
      out: resolve(values.out ?? join(root, 'build/site/pages')),
      withSolutions: values['with-solutions'],
      trace: values.trace && resolve(values.trace),
    };
  } catch (error) {
    throw new Trouble(2, error.message);
  }
}

/// The folder with a copy of this one and what package-lock.json names; npm runs only when that file has changed.
function prepareTool() {
  const tool = join(root, 'build/site/tool');
  mkdirSync(tool, { recursive: true });
  for (const name of readdirSync(tool)) if (name !== 'node_modules') rmSync(join(tool, name), { recursive: true });
  for (const name of readdirSync(here)) {
    if (name !== 'node_modules') cpSync(join(here, name), join(tool, name), { recursive: true });
  }
  const wanted = createHash('sha256').update(readFileSync(join(here, 'package-lock.json'))).digest('hex');
  const stamp = join(tool, 'node_modules/.workbook-lock');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return tool;
  process.stderr.write('npm installs what the site is made with, once…\n');
  const npm = spawnSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: tool, encoding: 'utf8' });
  if (npm.error) throw new Trouble(3, `npm cannot be started (${npm.error.code}): the site needs Node and npm`);
  if (npm.status !== 0) throw new Trouble(3, `npm ci failed:\n${npm.stdout}${npm.stderr}`);
  writeFileSync(stamp, wanted);
  return tool;
}

try {
  const { job, out, withSolutions, trace } = readCommandLine();
  if (Number(process.versions.node.split('.')[0]) < oldestNode)
    throw new Trouble(3, `this is Node ${process.versions.node}; the site needs ${oldestNode} or later`);
  const tool = prepareTool();
  const load = (file) => import(pathToFileURL(join(tool, file)).href);
  const started = Date.now();
  const { build } = await load('build.mjs');
  const built = await build({ root, tool, out, withSolutions });
  process.stderr.write(`${built.pages} pages in ${((Date.now() - started) / 1000).toFixed(1)} s\n`);
  if (job === 'test') {
    const { test } = await load('test.mjs');
    process.exitCode = await test({ root, tool, out, trace, pages: built.list });
  } else {
    process.stdout.write(`${join(out, 'index.html')}\n`);
  }
} catch (error) {
  process.stderr.write(`site: ${error.exitCode === undefined ? error.stack : error.message}\n`);
  process.exitCode = error.exitCode ?? 1;
}
