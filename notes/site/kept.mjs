// What takes long and comes out the same is kept for the next build, until a program of this folder or of npm's changes.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, renameSync, writeFileSync } from 'node:fs';

const folder = new URL('./', import.meta.url), file = new URL('node_modules/.workbook-kept.json', folder);
const digest = (texts) => texts.reduce((hash, text) => hash.update(text), createHash('sha1')).digest('base64');
const programs = digest(readdirSync(folder).filter((name) => /\.m?js(on)?$/.test(name)).map((name) => readFileSync(new URL(name, folder))));
const before = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {}, kept = before.programs === programs ? before.made : {};
const made = {};

/// make() of what `texts` are, or what an earlier build made of them.
export function once(make, ...texts) {
  const key = digest(texts);
  return (made[key] ??= kept[key] ?? make());
}
/// The file is whole, or the one before.
export function keep() {
  if (Object.keys(made).every((key) => key in kept)) return;
  const whole = new URL(`${file}.new`);
  writeFileSync(whole, JSON.stringify({ programs, made }));
  renameSync(whole, file);
}
